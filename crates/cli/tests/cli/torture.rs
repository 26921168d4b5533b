//! `turbidite torture`

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;

use super::*;

#[test]
fn a_short_torture_counts_what_it_did_and_finds_nothing() {
    let place = Place::new();
    let lines = place
        .run(&["torture", "crash", "--minutes", "0.05", "--seed", "3", "--file", "mmap", "--json"])
        .json();
    let last = lines.last().unwrap();
    assert_eq!((&last["mode"], &last["violations"]), (&"crash".into(), &0.into()));
    for what in ["cases", "operations", "faults_fired", "commits", "seeds"] {
        assert!(last[what].as_u64().unwrap() > 0, "{what}: {last}");
    }
    assert!(last["seconds"].as_f64().unwrap() > 0.0, "{last}");
    let text = place.run(&["torture", "crash", "--minutes", "0", "--file", "pos"]).text();
    assert!(text.contains("keep-all: 1\n"), "{text}");
    assert!(
        text.contains(" commits, ") && text.contains(", 0 settings as a whole, 1 seeds, "),
        "{text}"
    );
    assert!(text.contains(": 0 violations"), "{text}");
    // A seed on each of the layers, at three boundaries.
    let seeds =
        ["torture", "crash", "--seeds", "1", "--every", "60000", "--engine", "btree", "--json"];
    let last = place.run(&seeds).json().pop().unwrap();
    assert_eq!(
        (&last["settings as a whole"], &last["boundaries"]),
        (&6.into(), &18.into()),
        "{last}"
    );
    for mode in ["model", "linear", "faults", "flip", "kill"] {
        let run = ["torture", mode, "--minutes", "0.03", "--seed", "3", "--file", "mmap", "--json"];
        let lines = place.run(&run).json();
        let last = lines.last().unwrap();
        assert_eq!((&last["mode"], &last["violations"]), (&mode.into(), &0.into()), "{last}");
        let count = |what: &str| last[what].as_u64().unwrap();
        assert!(count("operations") >= count("cases") && count("cases") > 0, "{last}");
        assert!(["model", "linear"].contains(&mode) || count("faults_fired") > 0, "{last}");
    }
}

/// Ctrl-C at a terminal goes to all processes of a group.
#[test]
fn who_interrupts_a_torture_hears_what_it_has_tried() {
    let place = Place::new();
    let runs = ["crash", "kill"].map(|mode| {
        let mut command = place.command(&["torture", mode, "--seeds", "100000", "--json"]);
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    for mut run in runs {
        // It says how far it is now and then.
        let mut err = BufReader::new(run.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        assert!(line.starts_with("turbidite: 0."), "{line}");
        // Some who end a process after a while tell its group, too.
        let interrupt = ["-INT", "--", &format!("-{}", run.id()), &run.id().to_string()];
        assert!(Command::new("kill").args(interrupt).status().unwrap().success());
        let last = Run::of(run.wait_with_output().unwrap()).json().pop().unwrap();
        assert_eq!(last["violations"], 0, "{last}");
        assert!(last["cases"].as_u64().unwrap() > 0, "{last}");
    }
}

/// A bug in B+ trees is not noticed where there are none.
#[cfg(turbidite_planted_bugs)]
#[test]
fn a_bug_that_nobody_notices_is_a_violation() {
    let place = Place::new();
    let hunt = ["torture", "mutants", "--only", "ignore-node-checksum", "--minutes", "0"];
    let there = ["--engine", "hash", "--file", "pos", "--json"];
    let run = place.run(&[&hunt[..], &there].concat());
    assert_eq!(run.code, Some(1), "{}", run.err);
    let last = String::from_utf8(run.out).unwrap().lines().last().map(serde_json::from_str);
    let last: serde_json::Value = last.unwrap().unwrap();
    let count = |what: &str| last[what].as_u64().unwrap();
    assert_eq!((count("violations"), count("mutants_planted"), count("mutants_caught")), (1, 1, 0));
    assert_eq!(last["bugs"][0]["caught_by"], serde_json::Value::Null, "{last}");
}

#[test]
fn a_short_soak_keeps_to_its_bounds() {
    let place = Place::new();
    let soak = ["torture", "soak", "--minutes", "0", "--seed", "3", "--file", "pos", "--json"];
    let last = place.run(&soak).json().pop().unwrap();
    assert_eq!((&last["mode"], &last["violations"]), (&"soak".into(), &0.into()), "{last}");
    let count = |what: &str| last[what].as_u64().unwrap();
    assert!(
        count("cases") == 1 && count("operations") > 1000 && count("MiB on disk") > 0,
        "{last}"
    );
}

#[test]
fn a_case_is_tried_again_by_its_name() {
    let place = Place::new();
    for case in [
        "crash/3/all/mmap/40/keep-only:0",
        "faults/3/btree/pos/write:20:once:EIO",
        "model/3/all/pos",
        "linear/3/hash/mmap",
        "flip/3/btree/mmap/closed/keyspaces+1+tree/bit:70000",
    ] {
        let text = place.run(&["torture", "replay", case]).text();
        assert!(text.contains("replay: ") && text.contains(": 0 violations"), "{case}: {text}");
    }
    let last =
        place.run(&["torture", "replay", "crash/3/all/mmap/40/keep-only:0", "--json"]).json();
    let last = last.last().unwrap();
    assert_eq!((&last["mode"], &last["violations"]), (&"replay".into(), &0.into()), "{last}");
    assert!(last["cases"].as_u64().unwrap() > 1, "{last}");
}

#[test]
fn torture_refuses_what_it_does_not_know() {
    let place = Place::new();
    let error = place.run(&["torture", "replay", "crash/3/all/mmap/40"]).bad(2);
    assert!(error.contains("unknown case") && error.contains("as in crash/7/"), "{error}");
    for (nowhere, why) in [
        ("crash/3/all/mmap/99999999/keep-all", "the workload has "),
        ("crash/3/all/mmap/40/keep-only:9999", "operations are not synced there"),
        ("faults/3/btree/pos/write:9999999:once:EIO", "calls of write"),
        ("faults/3/btree/pos/lost-sync:9999:EIO", "the workload has "),
        ("faults/3/btree/pos/dead:999", "the workload has "),
        ("flip/3/btree/mmap/closed/nothing/bit:1", "nothing like it"),
    ] {
        let error = place.run(&["torture", "replay", nowhere]).bad(2);
        assert!(error.contains("unknown case") && error.contains(why), "{error}");
    }
    let error = place.run(&["torture", "replay", "model/3/all/tape"]).bad(2);
    assert!(error.contains("unknown file layer \"tape\""), "{error}");
    let error = place.run(&["torture", "replay", "3/all/mmap"]).bad(2);
    assert!(error.contains("one begins with crash, faults, "), "{error}");
    let behind = ["torture", "crash", "--from", "99999999", "--engine", "btree", "--seeds", "1"];
    let text = place.run(&behind).text();
    assert!(text.contains("6 settings that end before --from"), "{text}");
    let error = place.run(&["torture", "replay", "kill/3/all/mmap"]).bad(2);
    assert!(error.contains("up to chance"), "{error}");
    let error = place.run(&["torture", "crash", "--file", "tape"]).bad(2);
    assert!(error.contains("unknown file layer \"tape\": one of mmap, pos,"), "{error}");
    let error = place.run(&["torture", "model", "--engine", "trie"]).bad(2);
    assert!(error.contains("unknown engine \"trie\": one of all, lsm,"), "{error}");
    let error = place.run(&["torture", "crash", "--minutes=-1"]).bad(2);
    assert!(error.contains("--minutes must be a number of minutes from 0 to "), "{error}");
    let error = place.run(&["torture", "mutants"]).bad(2);
    assert!(error.contains("RUSTFLAGS='--cfg turbidite_planted_bugs'"), "{error}");
    let error = place.run(&["torture", "kill", "--dir", "/nowhere/at/all"]).bad(2);
    assert!(error.contains("no directory can be made in /nowhere/at/all"), "{error}");
}
