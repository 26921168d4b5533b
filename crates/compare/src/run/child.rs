//! What the process of one system does: reads a job from standard input, carries it out in a directory of its own, and
//! prints what it measured as one line of JSON.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use turbidite_workload::machine;

use super::job::{Act, Inside, Job, Load, Step};
use super::keys;
use super::outcome::{Compaction, Extent, Latency, Measured, Outcome};
use super::steps::Steps;
use crate::failure::{Failure, Result};
use crate::systems::{self, LevelKeys, Setup, System, tkrzw};

/// So many compactions of a step are kept: those in its middle.
const COMPACTIONS: usize = 160;

/// Carries out `job` in `path`, which is made anew and removed at the end.
pub(crate) fn run(job: &Job, path: &Path) -> Result<Outcome> {
    clear(path)?;
    fs::create_dir_all(path).map_err(|error| Failure::io("create", path, &error))?;
    let outcome = match job {
        Job::Store { setup, load } => store(setup, load, path),
        Job::Tkrzw { file, arguments } => tool(path, file, arguments),
    };
    let cleared = clear(path);
    let outcome = outcome?;
    cleared.map(|()| outcome)
}

/// Removes what is at `path`, if anything is.
pub(super) fn clear(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::io("remove", path, &error))
        }
        _ => Ok(()),
    }
}

fn store(setup: &Setup, load: &Load, path: &Path) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut steps = Steps::new(load.clone());
    let mut system = systems::open(setup, path)?;
    for step in &load.steps {
        if step.act == Act::Reopen {
            let start = Instant::now();
            system.close()?;
            outcome.steps.push(once("close", start, path));
            let start = Instant::now();
            system = systems::open(setup, path)?;
            outcome.steps.push(once(&step.name, start, path));
        } else if load.inside == Inside::Study {
            outcome.steps.push(as_the_study(&mut steps, step, system, path)?);
            return Ok(outcome);
        } else {
            outcome.steps.push(measure(&mut steps, step, &*system, path)?);
        }
    }
    let start = Instant::now();
    system.close()?;
    outcome.close_seconds = start.elapsed().as_secs_f64();
    Ok(outcome)
}

/// What was done once, and began at `start`.
fn once(name: &str, start: Instant, path: &Path) -> Measured {
    Measured {
        name: name.to_owned(),
        operations: 1,
        seconds: start.elapsed().as_secs_f64(),
        disk_bytes: disk_bytes(path),
        peak_rss_bytes: machine::peak_resident_bytes(),
        ..Measured::default()
    }
}

/// The region that the study has in its clock: making keys, putting, closing, removing the directory.
fn as_the_study(
    steps: &mut Steps,
    step: &Step,
    system: Box<dyn System>,
    path: &Path,
) -> Result<Measured> {
    let written = machine::written_bytes();
    let done = steps.run(step, &*system)?;
    let start = Instant::now();
    system.close()?;
    clear(path)?;
    Ok(Measured {
        name: step.name.clone(),
        operations: done.times.latencies.len(),
        seconds: done.times.seconds + start.elapsed().as_secs_f64(),
        user_bytes: done.user_bytes,
        written_bytes: machine::written_bytes().saturating_sub(written),
        peak_rss_bytes: machine::peak_resident_bytes(),
        latency: Latency::of(&done.times.latencies),
        marks: done.marks,
        ..Measured::default()
    })
}

/// Runs a step, and has the system settle if it wrote.
fn measure(steps: &mut Steps, step: &Step, system: &dyn System, path: &Path) -> Result<Measured> {
    let written = machine::written_bytes();
    let before: BTreeMap<_, _> = system.counters().into_iter().collect();
    drop(system.compactions());
    let done = steps.run(step, system)?;
    let start = Instant::now();
    if step.act.writes() {
        system.settle()?;
    }
    let settle_seconds = start.elapsed().as_secs_f64();
    let counters = system.counters().into_iter().map(|(name, count)| {
        // What stands for a size is told as it is, what counts as it grew.
        let since = if is_size(name) { 0.0 } else { before.get(name).copied().unwrap_or(0.0) };
        (name.to_owned(), count - since)
    });
    Ok(Measured {
        name: step.name.clone(),
        operations: done.times.latencies.len(),
        seconds: done.times.seconds,
        settle_seconds,
        user_bytes: done.user_bytes,
        written_bytes: machine::written_bytes().saturating_sub(written),
        disk_bytes: disk_bytes(path),
        live_bytes: steps.live_bytes(),
        peak_rss_bytes: machine::peak_resident_bytes(),
        latency: Latency::of(&done.times.latencies),
        marks: done.marks,
        counters: counters.collect(),
        compactions: middle(system.compactions(), &steps.load),
    })
}

/// The compactions in the middle of those that were told.
fn middle(mut all: Vec<systems::Compaction>, load: &Load) -> Vec<Compaction> {
    all.sort_by_key(|compaction| compaction.start);
    let first = all.len().saturating_sub(COMPACTIONS) / 2;
    let kept = &all[first..all.len().min(first + COMPACTIONS)];
    let Some(origin) = kept.first().map(|compaction| compaction.start) else { return Vec::new() };
    // Rounded to what can be seen, so that results stay short.
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    let keys = 2.0 * f64::from(load.records);
    let share = |key: &[u8]| {
        rounded(keys::number(load.keys, key).map_or(0.0, |number| number as f64 / keys))
    };
    let extent = |of: &LevelKeys| {
        let LevelKeys { level, smallest, largest } = of;
        Extent { level: *level, from: share(smallest), to: share(largest) }
    };
    let seconds = |at: Instant| rounded(at.saturating_duration_since(origin).as_secs_f64());
    let compaction = |told: &systems::Compaction| Compaction {
        start: seconds(told.start),
        end: seconds(told.end),
        inputs: told.inputs.iter().map(extent).collect(),
        outputs: told.outputs.iter().map(extent).collect(),
    };
    kept.iter().map(compaction).collect()
}

fn is_size(counter: &str) -> bool {
    ["bytes", "nodes", "records"].iter().any(|end| counter.ends_with(end))
}

/// What the files below `path` take on disk. What goes away meanwhile is not counted.
fn disk_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// Runs Tkrzw's tool. What is written is accounted to this process, which waits for it. What memory it tells of is not the most that it
/// took, and is not kept.
fn tool(path: &Path, file: &str, arguments: &[String]) -> Result<Outcome> {
    let written = machine::written_bytes();
    let phases = tkrzw::run(path, file, arguments)?;
    let written_bytes = machine::written_bytes().saturating_sub(written);
    let steps =
        [("set", "Setting"), ("get", "Getting")].into_iter().filter_map(|(name, called)| {
            let phase = phases.get(called)?;
            let figure = |name: &str| phase.figures.get(name).copied().unwrap_or(0.0);
            Some(Measured {
                name: name.to_owned(),
                operations: (phase.operations_per_second * phase.seconds).round() as u64,
                seconds: phase.seconds,
                written_bytes: if name == "set" { written_bytes } else { 0 },
                disk_bytes: figure("file_size") as u64,
                live_bytes: figure("eff_data_size") as u64,
                counters: phase.figures.clone(),
                ..Measured::default()
            })
        });
    Ok(Outcome { steps: steps.collect(), close_seconds: 0.0 })
}
