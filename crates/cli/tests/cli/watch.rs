//! watch: a database that nobody writes, one that another process writes, and what is left of one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use turbidite::Database;

use super::*;

const NAMES: [&str; 14] = [
    "state",
    "process",
    "open_seconds",
    "last_seqno",
    "taken_bytes",
    "read_bytes",
    "written_bytes",
    "pressure",
    "poisoned",
    "memory",
    "memtables_limit",
    "rates",
    "keyspaces",
    "jobs",
];

/// Ends a process by force when it goes out of scope.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// A process that writes to a database for a long time, and where that is.
fn writer(place: &Place) -> (Process, String) {
    let dir = place.path("bench");
    let text = dir.display().to_string();
    let mut command = turbidite();
    command.args(["bench", "--dir", &text, "--records", "2000000", "--value-size", "500"]);
    command.args(["--keys", "study", "--memory-budget", "16MiB", "--table-size", "256KiB"]);
    command.args(["--phases", "fill,overwrite,overwrite,overwrite"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let process = Process(child);
    loop {
        let made = fs::read_dir(&dir).ok().and_then(|mut names| names.next());
        let database = made.map(|made| made.unwrap().path().join("db"));
        if let Some(database) =
            database.filter(|path| path.join("keyspaces/1/manifest-000001").exists())
        {
            return (process, database.display().to_string());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn is_plain(picture: &str) {
    assert!(picture.lines().all(|line| line.chars().count() <= 80), "{picture}");
    assert!(picture.chars().all(|c| c == '\n' || !c.is_control()), "{picture}");
}

#[test]
fn a_quiet_database_is_shown_as_it_is() {
    let place = Place::new();
    let input: String = (0..3000).map(|number| format!("k{number:05}\tvalue\n")).collect();
    place
        .run_with_input(&["import", "DB", "-", "--format", "tsv", "--key", "1"], input.as_bytes())
        .good();
    place.run(&["compact", "DB"]).good();
    place.run(&["put", "DB", "k", "v", "--keyspace", "\u{1b}[2J", "--engine", "hash"]).good();
    let picture = place.run(&["watch", "DB", "--once"]).text();
    is_plain(&picture);
    for part in
        ["not open in any process", "default: lsm", "\\u{1b}[2J: hash", "- keys -", "k02999"]
    {
        assert!(picture.contains(part), "{part}: {picture}");
    }
    let lines = place.run(&["watch", "DB", "--once", "--json"]).json();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(names(line), NAMES);
    assert_eq!((&line["state"], &line["rates"]), (&"still".into(), &Value::Null));
    let tree = &line["keyspaces"][1]["tree"];
    assert_eq!(
        (&line["keyspaces"][0]["tree"], &tree["claims"]),
        (&Value::Null, &serde_json::json!([]))
    );
    let spans = &tree["levels"][0]["spans"];
    assert_eq!(spans[0]["smallest"], hex("k00000"));
    assert!(!place.path("db/watch.request").exists());
    place.run(&["watch", "no such database", "--once"]).bad(2);
    fs::create_dir(place.path("empty")).unwrap();
    place.run(&["watch", place.path("empty").to_str().unwrap(), "--once"]).bad(2);
    assert_eq!(fs::read_dir(place.path("empty")).unwrap().count(), 0);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_database_that_another_process_writes_is_shown_until_that_ends() {
    let place = Place::new();
    let (process, database) = writer(&place);
    let watching = |more: &[&str]| place.run(&[&["watch", &database], more].concat());
    let lines = watching(&["--once", "--json"]).json();
    assert_eq!((names(&lines[0]), &lines[0]["state"]), (NAMES.to_vec(), &"live".into()));
    assert_eq!(lines[0]["process"], process.0.id());
    assert!(lines[0]["rates"]["writes"].is_u64(), "{}", lines[0]["rates"]);
    let picture = watching(&["--once"]).text();
    is_plain(&picture);
    let open = format!("in process {}", process.0.id());
    assert!(picture.contains(&open) && picture.contains("bench: lsm"), "{picture}");
    let mut watch = turbidite();
    watch.args(["watch", &database, "--json", "--interval", "100"]).stdout(Stdio::piped());
    let mut watch = Process(watch.spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let (first, second) = (next(), next());
    assert_eq!((&first["state"], &second["state"]), (&"live".into(), &"live".into()));
    let seqno = |line: &Value| line["last_seqno"].as_u64().unwrap();
    assert!(seqno(&first) <= seqno(&second));
    drop(process);
    // What it left is no answer.
    assert!(Path::new(&database).join("watch.status").exists());
    let last = loop {
        let line = next();
        if line["state"] == "still" {
            break line;
        }
        assert_eq!(line["state"], "live");
    };
    assert!(seqno(&second) <= seqno(&last));
    assert!(watching(&["--once"]).text().contains("not open in any process"));
}

#[test]
fn a_process_that_does_not_answer_is_told_of() {
    let place = Place::new();
    place.run(&["put", "DB", "k", "v"]).good();
    let database = Database::open(place.path("db")).unwrap();
    // Whatever the file says.
    for status in [&b""[..], b"TBWATCH\x01\0\0\0\0\xff\xff", &[0xff; 5000]] {
        fs::write(place.path("db/watch.status"), status).unwrap();
        let error = place.run(&["watch", "DB", "--once"]).bad(4);
        assert!(error.contains("publish_status"), "{error}");
    }
    assert!(!place.path("db/watch.request").exists());
    let mut watch = place.command(&["watch", "DB", "--interval", "50"]);
    let mut watch = Process(watch.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("does not answer"));
    database.close().unwrap();
    while !next().contains("not open in any process") {}
    // It goes on when somebody has it open again.
    let database = Database::builder(place.path("db")).publish_status(true).open().unwrap();
    while !next().contains(&format!("in process {}", std::process::id())) {}
    database.close().unwrap();
}
