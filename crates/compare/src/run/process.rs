//! The process that carries out a job: it has until its time is up, and it ends when this one does, as does a tool that it
//! runs. All of them are of one process group, so that an interrupt at the terminal reaches each.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::job::Job;
use super::outcome::Outcome;
use crate::failure::{Failure, Result};

/// How often it is looked whether the time of a run is up.
const LOOK: Duration = Duration::from_millis(20);

/// Has a process of this program carry out `job`, and ends it when the time is up.
pub(super) fn carry_out(job: &Job, data: &Path, limit: Option<Duration>) -> Result<Outcome> {
    let program = std::env::current_exe();
    let program =
        program.map_err(|error| Failure::other(format!("cannot find this program: {error}")))?;
    let started = Command::new(&program)
        .arg("child")
        .arg(data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let failed = |error: io::Error| Failure::io("run", &program, &error);
    let mut child = started.map_err(failed)?;
    let text = serde_json::to_string(job).expect("plain data");
    if let Some(mut input) = child.stdin.take() {
        input.write_all(text.as_bytes()).map_err(failed)?;
    }
    let Output { status, stdout, stderr } = match output_within(child, limit).map_err(failed)? {
        Some(output) => output,
        None => {
            let minutes = limit.unwrap_or_default().as_secs_f64() / 60.0;
            return Err(Failure::other(format!("it took longer than {minutes} minutes")));
        }
    };
    let said = String::from_utf8_lossy(&stderr);
    if !status.success() {
        let said = said.trim();
        let said = said.strip_prefix("turbidite-compare: ").unwrap_or(said);
        return Err(Failure::of_process(status.code(), format!("{said} ({status})")));
    }
    serde_json::from_slice(&stdout)
        .map_err(|error| Failure::other(format!("what a process measured cannot be read: {error}")))
}

/// Has the system end this process when the one that started it ends, in whatever way.
pub(crate) fn end_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::other(format!("cannot ask to end with its parent: {error}")))
}

/// A command that runs `tool` with a process of this program in between, which turns into the tool: so the tool ends with
/// this process.
pub(crate) fn tool(tool: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("tool").arg(tool);
    Ok(command)
}

/// Turns this process into `tool`, which ends with its parent as this one would.
pub(crate) fn become_tool(tool: &OsStr, arguments: &[OsString]) -> Result<()> {
    end_with_parent()?;
    let error = Command::new(tool).args(arguments).exec();
    Err(Failure::io("run", Path::new(tool), &error))
}

/// What a process gives until its end; `None` if it had to be ended.
fn output_within(mut child: Child, limit: Option<Duration>) -> io::Result<Option<Output>> {
    let Some(limit) = limit else { return child.wait_with_output().map(Some) };
    let piped = "its output is piped";
    let mut stdout = child.stdout.take().expect(piped);
    let mut stderr = child.stderr.take().expect(piped);
    let (mut said, mut told) = (Vec::new(), Vec::new());
    let ended: io::Result<Option<ExitStatus>> = thread::scope(|scope| {
        // It waits for whoever does not read.
        let reads = [(&mut stdout as &mut (dyn Read + Send), &mut said), (&mut stderr, &mut told)];
        let reads = reads.map(|(from, to)| scope.spawn(move || from.read_to_end(to)));
        let ended = end_within(&mut child, limit);
        for read in reads {
            read.join().expect("reading does not panic")?;
        }
        ended
    });
    Ok(ended?.map(|status| Output { status, stdout: said, stderr: told }))
}

/// How a process ends; `None` if it had to be ended when the time was up.
fn end_within(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ended_when_its_time_is_up() {
        let output = |script: &str, limit| {
            let mut shell = Command::new("sh");
            let child = shell.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
            output_within(child.spawn().unwrap(), Some(limit)).unwrap()
        };
        let minute = Duration::from_secs(60);
        let start = Instant::now();
        assert!(output("exec sleep 60", Duration::from_millis(30)).is_none());
        assert!(start.elapsed() < minute / 2);
        let Output { status, stdout, stderr } = output("echo said; echo told >&2", minute).unwrap();
        assert!(status.success() && stdout == b"said\n" && stderr == b"told\n");
        assert_eq!(output("exit 5", minute).unwrap().status.code(), Some(5));
    }
}
