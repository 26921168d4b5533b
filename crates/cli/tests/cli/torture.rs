//! `turbidite torture`

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
    assert!(
        text.contains(" commits, 1 seeds from 1, ") && text.contains(": 0 violations"),
        "{text}"
    );
    let line =
        place.run(&["torture", "model", "--minutes", "0.05", "--seed", "3", "--json"]).json();
    assert_eq!((&line[0]["mode"], &line[0]["violations"]), (&"model".into(), &0.into()));
    assert!(line[0]["operations"].as_u64() > line[0]["cases"].as_u64(), "{}", line[0]);
    assert!(place.run(&["torture", "replay", "model/3/pos"]).text().is_empty());
    assert!(place.run(&["torture", "replay", "crash/3/mmap/40/keep-only:0"]).text().is_empty());
}

#[test]
fn torture_refuses_what_it_does_not_know() {
    let place = Place::new();
    let error = place.run(&["torture", "replay", "crash/3/mmap/40"]).bad(2);
    assert!(error.contains("is not the name of a case, which is like crash/7/"), "{error}");
    for nowhere in ["crash/3/mmap/99999999/keep-all", "crash/3/mmap/40/keep-only:9999"] {
        let error = place.run(&["torture", "replay", nowhere]).bad(1);
        assert!(error.contains("there is no such case"), "{error}");
    }
    let error = place.run(&["torture", "replay", "model/3/tape"]).bad(2);
    assert!(error.contains("or model/7/mmap"), "{error}");
    let error = place.run(&["torture", "crash", "--file", "tape"]).bad(2);
    assert!(error.contains("unknown file layer \"tape\": one of mmap, pos,"), "{error}");
    let error = place.run(&["torture", "crash", "--minutes=-1"]).bad(2);
    assert!(error.contains("--minutes must be a number that is not negative"), "{error}");
}
