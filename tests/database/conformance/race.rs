//! Processes that open one new database at the same moment: one makes it, the others are locked out.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use turbidite::{Database, KeyspaceOptions};

use crate::setup::NAME;

/// Set for the processes that the test starts: the database to open.
const RACER: &str = "TURBIDITE_TEST_RACE";
const ROUNDS: usize = 10;
const RACERS: usize = 4;

/// A process that opens the database when it is told to, and keeps it until it is told to end.
struct Racer {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Racer {
    fn new(path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "conformance::race::one_of_many_processes_opens", "--nocapture"])
            .env(RACER, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// What the process says next, which stands in brackets among what the test harness says.
    fn says(&mut self) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once('[') {
                return said.trim_end().trim_end_matches(']').to_owned();
            }
            line.clear();
        }
        panic!("the process ended before it said anything")
    }

    fn tell(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    }

    fn end(mut self) {
        self.tell();
        // The harness may have more to say.
        self.output.read_to_end(&mut Vec::new()).unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

/// What a racer does.
fn race(path: OsString) {
    let told = || std::io::stdin().read_exact(&mut [0]).unwrap();
    println!("[ready]");
    told();
    let opened = Database::open(path);
    match &opened {
        Ok(database) => {
            let keyspace = database.keyspace(NAME, KeyspaceOptions::lsm()).unwrap();
            keyspace.put("winner", std::process::id().to_string()).unwrap();
            println!("[opened]");
        }
        Err(error) => println!("[{:?}]", error.kind()),
    }
    told();
}

#[test]
fn one_of_many_processes_opens() {
    if let Some(path) = std::env::var_os(RACER) {
        return race(path);
    }
    for round in 0..ROUNDS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/test.db");
        let mut racers: Vec<Racer> = (0..RACERS).map(|_| Racer::new(&path)).collect();
        assert!(racers.iter_mut().all(|racer| racer.says() == "ready"));
        racers.iter_mut().for_each(Racer::tell);
        let said: Vec<String> = racers.iter_mut().map(Racer::says).collect();
        let winners: Vec<usize> = (0..RACERS).filter(|&racer| said[racer] == "opened").collect();
        assert_eq!(winners.len(), 1, "round {round}: {said:?}");
        let locked_out = said.iter().filter(|said| *said == "Locked").count();
        assert_eq!(locked_out, RACERS - 1, "round {round}: {said:?}");
        let winner = racers[winners[0]].process.id().to_string();
        racers.into_iter().for_each(Racer::end);
        let database = Database::builder(&path).create(false).open().unwrap();
        let keyspace = database.open_keyspace(NAME).unwrap();
        assert_eq!(keyspace.get("winner").unwrap().unwrap(), winner.as_bytes());
    }
}
