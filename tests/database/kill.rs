//! A real process, killed while it writes to real files.
//!
//! The parent starts this test binary again as the child, which writes and says on its standard output what
//! was acknowledged. What the parent has read from the pipe must be there afterwards.

use std::process::Command;

use turbidite_torture::{Engines, Setting, kill};

use crate::choices;
use crate::setup::layers;

/// Tells the child what to do.
const CHILD: &str = "TURBIDITE_KILLED_CHILD";

/// What the child process runs; nothing without a parent that asks for it.
#[test]
fn child_that_writes_until_it_is_killed() {
    if let Ok(task) = std::env::var(CHILD) {
        kill::work(&task);
    }
}

fn start(task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let child = "kill::child_that_writes_until_it_is_killed";
    command.args(["--exact", child, "--nocapture"]).env(CHILD, task);
    command
}

/// Over every engine, if the disk has this layer.
fn kill_in(name: &str) {
    for layer in layers().into_iter().filter(|layer| layer.to_string() == name) {
        for engines in Engines::each() {
            let dir = tempfile::tempdir().unwrap();
            let setting = Setting { engines, ..Setting::new(choices::seed(), layer) };
            let report = kill::run(setting, dir.path(), &start);
            assert!(report.violations.is_empty(), "{:?}", report.violations);
            println!("{setting}: {} kills, {} writes survived", report.cases, report.operations);
        }
    }
}

#[test]
fn acknowledged_writes_survive_kills_with_mapped_files() {
    kill_in("mmap");
}

#[test]
fn acknowledged_writes_survive_kills_with_positional_files() {
    kill_in("pos");
}

#[test]
fn acknowledged_writes_survive_kills_with_files_in_blocks() {
    kill_in("pos-block");
    kill_in("pos-block-cache");
}

#[test]
fn acknowledged_writes_survive_kills_with_direct_files() {
    kill_in("pos-direct");
    kill_in("pos-direct-cache");
}
