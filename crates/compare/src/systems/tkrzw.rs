//! Tkrzw, through the tool it is measured with: `tkrzw_dbm_perf` of Debian's tkrzw-utils. The tool has its own loop, which
//! makes keys and their random numbers inside the clock; what it prints is read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result};
use crate::run::process;

const TOOL: &str = "tkrzw_dbm_perf";

/// What is missing for it to run.
pub(super) fn missing() -> Option<String> {
    let started =
        Command::new(TOOL).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match started {
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!(
            "not installed: `apt-get install tkrzw-utils` has {TOOL}, which must be on the PATH"
        )),
        Err(error) => Some(format!("not to be run: {TOOL}: {error}")),
    }
}

/// What one phase of the tool gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Phase {
    pub(crate) seconds: f64,
    pub(crate) operations_per_second: f64,
    /// All figures it prints, by their names.
    pub(crate) figures: BTreeMap<String, f64>,
}

/// Runs the sequence of sets and gets with `arguments` on a database called `file` in `path`, and gives the phases by
/// their names: `Setting`, `Getting`.
pub(crate) fn run(
    path: &Path,
    file: &str,
    arguments: &[String],
) -> Result<BTreeMap<String, Phase>> {
    let database = path.join(file);
    let output = process::tool(TOOL)
        .map_err(|error| Failure::of_system(TOOL, error))?
        .arg("sequence")
        .arg("--path")
        .arg(&database)
        .args(arguments)
        .output()
        .map_err(|error| Failure::of_system(TOOL, error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().chain(text.lines()).last().unwrap_or_default();
        return Err(Failure::of_system(TOOL, format!("{}: {last}", output.status)));
    }
    let phases = parse(&text);
    if phases.is_empty() {
        return Err(Failure::of_system(TOOL, "it printed no figures: is this another version?"));
    }
    Ok(phases)
}

/// Reads lines like `Setting done: elapsed_time=0.05 num_records=63442 qps=1956454 mem=9272000`, and the indented ones
/// behind them.
fn parse(text: &str) -> BTreeMap<String, Phase> {
    let mut phases = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        let figures = if let Some((name, figures)) = line.split_once(" done: ") {
            current = Some(name.to_owned());
            figures
        } else if line.starts_with("  ") {
            line
        } else {
            current = None;
            continue;
        };
        let Some(name) = &current else { continue };
        let phase: &mut Phase = phases.entry(name.clone()).or_default();
        for (name, value) in figures.split_whitespace().filter_map(|word| word.split_once('=')) {
            if let Ok(value) = value.trim_end_matches('%').parse() {
                phase.figures.insert(name.to_owned(), value);
            }
        }
        phase.seconds = phase.figures.get("elapsed_time").copied().unwrap_or(0.0);
        phase.operations_per_second = phase.figures.get("qps").copied().unwrap_or(0.0);
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tool_prints_is_read() {
        let text = "Setting: impl=auto num_iterations=100000\n..... (00005000)\nSynchronizing: ... done (elapsed=0.1)\n\
                    Setting done: elapsed_time=0.051113 num_records=63442 qps=1956454 mem=9272000\n  \
                    file_size=8923392 efficiency=76.78%\n\nGetting done: elapsed_time=0.038 num_records=63442 qps=2600167 \
                    mem=1\n";
        let phases = parse(text);
        let set = &phases["Setting"];
        assert_eq!((set.seconds, set.operations_per_second), (0.051113, 1_956_454.0));
        assert_eq!((set.figures["file_size"], set.figures["efficiency"]), (8_923_392.0, 76.78));
        assert_eq!(phases["Getting"].operations_per_second, 2_600_167.0);
        assert_eq!(phases.len(), 2);
    }
}
