//! Tests that need a process to themselves: what they measure is of all threads.

use std::env;
use std::process::Command;

/// Set to the name of the test that has the process to itself.
const ALONE: &str = "TURBIDITE_TEST_ALONE";
/// Where these tests are.
const TESTS: &str = "fuzzing::tests::";

/// Whether the test `name`, of those below [`TESTS`], has this process to itself. If it has not, it is run in one that it
/// has, and what is told there is told here.
///
/// # Panics
/// If it fails there.
pub(super) fn is_alone(name: &str) -> bool {
    let name = format!("{TESTS}{name}");
    if env::var(ALONE).is_ok_and(|alone| alone == name) {
        return true;
    }
    let this = env::current_exe().expect("a test has a program");
    let output = Command::new(this)
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(ALONE, &name)
        .output()
        .expect("the program can be run");
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} failed in a process of its own: {}", output.status);
    assert!(told.contains("test result: ok. 1 passed"), "there is no test {name}");
    false
}
