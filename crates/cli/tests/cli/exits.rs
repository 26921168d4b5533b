//! Exit codes, messages, colours, and pipes that close early.

use std::io::{BufRead, BufReader};

use super::*;

fn filled() -> Place {
    let place = Place::new();
    place.run(&["put", "DB", "key", "value"]).good();
    place
}

/// All reading commands, on a database.
const READING: [&[&str]; 7] = [
    &["get", "DB", "key"],
    &["scan", "DB"],
    &["count", "DB"],
    &["export", "DB"],
    &["keyspaces", "DB"],
    &["stats", "DB"],
    &["verify", "DB"],
];

#[test]
fn a_missing_key_is_1() {
    let message = filled().run(&["get", "DB", "nothing"]).bad(1);
    assert_eq!(message, "turbidite: there is no key \"nothing\"\n");
}

#[test]
fn nothing_to_open_is_2_and_creates_nothing() {
    let place = Place::new();
    let changing: [&[&str]; 3] =
        [&["delete", "DB", "key"], &["clear", "DB", "default", "--yes"], &["compact", "DB"]];
    for arguments in READING.iter().chain(&changing) {
        let message = place.run(arguments).bad(2);
        assert!(message.contains("no database"), "{message}");
        assert!(!place.path("db").exists(), "{arguments:?}");
    }
    fs::create_dir(place.path("db")).unwrap();
    for arguments in READING {
        place.run(arguments).bad(2);
    }
    assert_eq!(fs::read_dir(place.path("db")).unwrap().count(), 0);
}

#[test]
fn a_missing_keyspace_is_2_and_creates_nothing() {
    let place = filled();
    let commands: [&[&str]; 6] = [
        &["get", "DB", "key"],
        &["scan", "DB"],
        &["count", "DB"],
        &["export", "DB"],
        &["delete", "DB", "key"],
        &["compact", "DB"],
    ];
    for arguments in commands {
        let message = place.run(&[arguments, &["--keyspace", "other"]].concat()).bad(2);
        assert!(message.contains("other"), "{message}");
    }
    assert_eq!(place.run(&["keyspaces", "DB", "--json"]).json().len(), 1);
}

#[test]
fn wrong_usage_is_2() {
    let place = filled();
    let wrong: [&[&str]; 9] = [
        &[],
        &["no-such-command"],
        &["get", "DB"],
        &["delete", "DB"],
        &["scan", "DB", "--limit", "many"],
        &["get", "DB", "key", "--memory-budget", "1 parsec"],
        &["put", "DB", "k", "v", "--durability", "maybe"],
        &["get", "DB", "key", "--recovery", "perhaps"],
        &["bench", "--value-entropy", "2"],
    ];
    for arguments in wrong {
        assert_eq!(place.run(arguments).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn damage_is_3() {
    let place = Place::new();
    let mut text = Vec::new();
    let mut number = 1_u64;
    for line in 0..20_000 {
        number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        writeln!(text, "{line:08}\t{number:032x}{:032x}", number ^ 0x5555_5555_5555_5555).unwrap();
    }
    let file = place.file("lines", &text);
    place.run(&["import", "DB", &file, "--format", "tsv", "--key", "1"]).good();
    place.run(&["compact", "DB"]).good();
    place.run(&["verify", "DB"]).good();
    let mut damaged = 0;
    let mut dirs = vec![place.path("db")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let mut bytes = fs::read(&path).unwrap();
            if bytes.len() >= 64 << 10 {
                let middle = bytes.len() / 3;
                bytes[middle] ^= 0x10;
                fs::write(&path, bytes).unwrap();
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0);
    place.run(&["verify", "DB"]).bad(3);
}

/// A database with three synced writes in its log, the second of them damaged.
fn with_a_damaged_log() -> Place {
    let place = Place::new();
    for (key, value) in [("key", "value"), ("lost", "damaged"), ("lost too", "whole")] {
        place.run(&["put", "DB", key, value, "--durability", "sync"]).good();
    }
    let mut found = 0;
    for entry in fs::read_dir(place.path("db/log")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(7).position(|part| part == b"damaged") {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            found += 1;
        }
    }
    assert_eq!(found, 1);
    place
}

#[test]
fn a_damaged_log_is_3_unless_recovery_is_tolerant() {
    let place = with_a_damaged_log();
    for arguments in READING {
        let tolerant = place.run(&[arguments, &["--recovery", "tolerant"]].concat());
        match arguments[0] {
            "verify" => assert!(tolerant.out.ends_with(b" 1 problems\n"), "{tolerant:?}"),
            _ => drop(tolerant.good()),
        }
        // Whoever only reads repairs nothing.
        place.run(&[arguments, &["--recovery", "strict"]].concat()).bad(3);
        let message = place.run(arguments).bad(3);
        assert!(message.contains("tolerant recovery"), "{message}");
    }
    let scan = ["scan", "DB", "--recovery", "tolerant"];
    assert_eq!(place.run(&scan).text(), "key\tvalue\n");
    let stats = place.run(&["stats", "DB", "--json", "--recovery", "tolerant"]).json().remove(0);
    assert!(stats["recovery"]["dropped_bytes"].as_u64().unwrap() > 0, "{stats}");
}

#[test]
fn whoever_writes_makes_tolerant_recovery_final() {
    let files = Place::new();
    let file = files.file("lines", b"new\tvalue\n");
    let changing: [(&[&str], &str); 4] = [
        (&["put", "DB", "new", "value"], "key\nnew\n"),
        (&["import", "DB", &file, "--format", "tsv", "--key", "1"], "key\nnew\n"),
        (&["delete", "DB", "key"], ""),
        (&["compact", "DB"], "key\n"),
    ];
    for (arguments, left) in changing {
        let place = with_a_damaged_log();
        place.run(arguments).bad(3);
        let run = place.run(&[arguments, &["--recovery", "tolerant"]].concat());
        assert!(run.err.contains(" of the log were cut off"), "{arguments:?}: {}", run.err);
        run.good();
        assert_eq!(place.run(&["scan", "DB", "--keys-only"]).text(), left, "{arguments:?}");
        place.run(&["verify", "DB"]).good();
    }
}

#[test]
fn a_database_in_use_is_4() {
    let place = filled();
    let database = turbidite::Database::open(place.path("db")).unwrap();
    let commands: [&[&str]; 4] =
        [&["put", "DB", "k", "v"], &["get", "DB", "key"], &["verify", "DB"], &["compact", "DB"]];
    for arguments in commands {
        let message = place.run(arguments).bad(4);
        assert!(message.contains("in use"), "{message}");
    }
    database.close().unwrap();
    // A process that another test has just forked holds the lock too, until it becomes a command.
    let freed = || place.run(&["get", "DB", "key"]).code == Some(0);
    assert!((0..100).any(|_| freed()));
}

#[test]
fn an_io_error_is_5() {
    let place = filled();
    let missing = place.path("missing").display().to_string();
    let message = place.run(&["import", "DB", &missing, "--format", "tsv", "--key", "1"]).bad(5);
    assert!(message.contains("missing"), "{message}");
    let nowhere = place.path("no/such/dir/file").display().to_string();
    place.run(&["export", "DB", &nowhere]).bad(5);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_output_is_5() {
    let place = filled();
    place.run(&["export", "DB", "/dev/full"]).bad(5);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = place.command(&["scan", "DB"]).stdout(full).stderr(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(5));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let place = Place::new();
    let mut text = Vec::new();
    (0..50_000).for_each(|line| writeln!(text, "{line:08} some text").unwrap());
    let file = place.file("lines", &text);
    place.run(&["import", "DB", &file, "--format", "tsv", "--key", "1"]).good();
    for arguments in [["scan", "DB"], ["export", "DB"]] {
        let mut command = place.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("00000000"), "{line}");
        let end = Run::of(child.wait_with_output().unwrap());
        assert_eq!((end.code, end.err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn pipes_and_no_color_get_no_colour() {
    let place = filled();
    let help = place.run(&["--help"]).text();
    assert!(!help.contains('\x1b'), "{help}");
    assert!(!place.run(&["get", "DB", "nothing"]).bad(1).contains('\x1b'));
    // Colours are there, and can be forced; NO_COLOR turns them off on a terminal.
    let mut forced = place.command(&["get", "DB", "nothing"]);
    let run = Run::of(forced.env("CLICOLOR_FORCE", "1").output().unwrap());
    assert!(run.err.contains('\x1b'), "{}", run.err);
}

#[cfg(target_os = "linux")]
#[test]
fn no_color_is_honoured_on_a_terminal() {
    let place = filled();
    // `script` gives its command a terminal; without it there is nothing to try this on.
    let line =
        format!("{} get {} nothing", env!("CARGO_BIN_EXE_turbidite"), place.path("db").display());
    let on_terminal = |no_color: bool| {
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let output = command.stdin(Stdio::null()).output().ok()?;
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let (Some(with), Some(without)) = (on_terminal(false), on_terminal(true)) else { return };
    assert!(with.contains("\x1b["), "{with:?}");
    assert!(!without.contains("\x1b[") && without.contains("turbidite: there is"), "{without:?}");
}

/// Linux sends a signal, which ends a process, to one that would write behind the size that files may have.
#[test]
fn files_that_would_become_too_large_are_no_space() {
    let place = Place::new();
    let records: String = (0..20_000).map(|at| format!("{at}\t{}\n", "x".repeat(100))).collect();
    let records = place.file("records", records.as_bytes());
    // In units of 512 bytes: less than the tail of the log, than a segment, and than a file of the engine.
    for (durability, blocks) in [("os", "60"), ("os", "600"), ("none", "600")] {
        for engine in ["lsm", "hash", "btree", "skip"] {
            let database = place.path(&format!("{engine}-{durability}-{blocks}"));
            let mut command = Command::new("sh");
            command.args(["-c", r#"ulimit -f "$1"; shift; exec "$@""#, "sh", blocks]);
            command.arg(env!("CARGO_BIN_EXE_turbidite")).arg("import").arg(&database);
            command.args([&records, "--format", "tsv", "--key", "1", "--engine", engine]);
            command.args(["--durability", durability]);
            let run = Run::of(command.output().unwrap());
            let what = format!("{}: {:?}, {}", database.display(), run.code, run.err);
            assert!(run.code == Some(5) && run.err.contains("no space left"), "{what}");
        }
    }
}
