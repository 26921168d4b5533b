//! `turbidite torture mutants`

use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

pub(super) use self::planting::plant;
use super::course::{Course, violated};
use crate::failure::{Failure, Result};
use crate::output;

/// How long it lasts if nothing is said.
const MINUTES: f64 = 60.0;
/// What one hunt has at least.
const LEAST: Duration = Duration::from_secs(5);
/// What the one without any bug has: a part of all the time, but so much that each mode has its turn, and no more than enough.
const CONTROL_PART: u32 = 10;
const CONTROL: RangeInclusive<Duration> = Duration::from_secs(20)..=Duration::from_secs(60);
/// A hunt that takes so much longer than it may hangs, which is noticed, too.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name of no bug.
const NONE: &str = "none";
/// The modes whose cases can be tried again by their names.
const REPLAYED: [&str; 5] = ["crash", "faults", "flip", "model", "linear"];
/// The exit code of a command that was asked for what there is not.
const USAGE: i32 = 2;
/// The exit code of a process that has panicked.
const PANICKED: i32 = 101;
/// How much of what was wrong is told, which a pipe can hold.
#[cfg(turbidite_planted_bugs)]
const TOLD: usize = 100;

/// Plant bugs in the store, one after the other, and see whether the other modes notice each
///
/// Needs a build with the bugs in it: RUSTFLAGS='--cfg turbidite_planted_bugs'. Each bug is hunted in a process of its own, by all modes but `soak` in turn. First there is
/// a hunt with no bug, which must find nothing; nor may the case that caught a bug, tried again without it, or, where it has no name, a hunt that lasts as long. The minutes are for all bugs together: those that nobody has noticed are hunted again, from other seeds on, until
/// they are over. A bug that is not noticed then is a hole in the torture, and the exit code is 1.
#[derive(Args, Debug)]
pub(super) struct Mutants {
    #[command(flatten)]
    course: Course,
    /// Only these bugs, by name
    #[arg(long, value_name = "BUG", value_delimiter = ',')]
    only: Vec<String>,
}

/// What became of a bug.
#[derive(Default)]
struct Hunted {
    bug: String,
    /// The mode that noticed it, if one did.
    by: Option<String>,
    problem: String,
    /// That the same goes wrong without the bug, which is worse than one that nobody notices.
    doubt: Option<String>,
    cases: u64,
    operations: u64,
    faults_fired: u64,
    seconds: f64,
}

impl Hunted {
    fn sentence(&self) -> String {
        let Self { bug, by, problem, doubt, cases, seconds, .. } = self;
        if let Some(doubt) = doubt {
            return format!("{bug}: {doubt}");
        }
        match by {
            Some(by) => format!("{bug}: caught by {by} after {seconds:.1} s: {problem}"),
            None if problem.is_empty() => {
                format!("{bug}: not caught in {cases} cases, {seconds:.1} s")
            }
            None => format!("{bug}: not caught in {seconds:.1} s: {problem}"),
        }
    }
}

impl Mutants {
    pub(super) fn run(&self) -> Result<()> {
        let time = self.course.time(MINUTES)?;
        self.course.expect_no_seeds("a bug is hunted until it is caught: give --minutes")?;
        // What is wrong with them is told before anything is hunted.
        (_, _) = (self.course.engines()?, self.course.layers()?);
        let all = planting::names()?;
        if let Some(unknown) = self.only.iter().find(|name| !all.contains(name)) {
            return Err(Failure::usage(format!(
                "unknown bug {unknown:?}: one of {}",
                all.join(", ")
            )));
        }
        let is_chosen = |name: &String| self.only.is_empty() || self.only.contains(name);
        let begun = Instant::now();
        let mut hunted = vec![Hunted { bug: NONE.into(), ..Hunted::default() }];
        let control = (time / CONTROL_PART).clamp(*CONTROL.start(), *CONTROL.end());
        hunted[0] = self.hunt(&hunted[0], control, 0)?;
        if !hunted[0].problem.is_empty() || hunted[0].by.is_some() {
            anstream::eprintln!("turbidite: without any bug: {}", hunted[0].problem);
            return self.tell(&hunted, begun.elapsed());
        }
        let bugs = all.into_iter().filter(is_chosen);
        hunted.extend(bugs.map(|bug| Hunted { bug, ..Hunted::default() }));
        for round in 0.. {
            let survivors: Vec<_> =
                (1..hunted.len()).filter(|&at| hunted[at].by.is_none()).collect();
            if survivors.is_empty() || (round > 0 && begun.elapsed() >= time) {
                break;
            }
            for (done, &at) in survivors.iter().enumerate() {
                let left = time.saturating_sub(begun.elapsed()) / (survivors.len() - done) as u32;
                hunted[at] = self.hunt(&hunted[at], left.max(LEAST), round)?;
                if hunted[at].by.is_some() && !self.course.figures.json {
                    anstream::println!("{}", hunted[at].sentence());
                }
            }
        }
        if !self.course.figures.json {
            let survivors = hunted[1..].iter().filter(|one| one.by.is_none());
            survivors.for_each(|one| anstream::println!("{}", one.sentence()));
        }
        self.tell(&hunted, begun.elapsed())
    }

    /// Hunts a bug once more, in another process.
    fn hunt(&self, before: &Hunted, time: Duration, round: u64) -> Result<Hunted> {
        let Course { seed, engine, file, .. } = &self.course;
        let bug = &before.bug;
        // Rounds begin with seeds that the one before did not come to.
        let seed = seed.wrapping_add(round << 16).to_string();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["torture", "mutant", bug, "--seconds", &time.as_secs().to_string()])
            .args(["--seed", &seed, "--engine", engine, "--file", file])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let begun = Instant::now();
        while child.try_wait()?.is_none() && begun.elapsed() < time + PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let hangs = child.try_wait()?.is_none();
        if hangs {
            child.kill()?;
        }
        let status = child.wait()?;
        let mut told = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut told)?;
        }
        let told: Value = serde_json::from_str(&told).unwrap_or_default();
        let seconds = before.seconds + begun.elapsed().as_secs_f64();
        let more = |before: u64, name: &str| before + told[name].as_u64().unwrap_or_default();
        let (by, problem) = match told["caught_by"].as_str() {
            Some(by) => (Some(by), format!("{}: {}", told["case"], told["problem"])),
            None if hangs => (Some("a hang"), String::new()),
            None if has_crashed(status) => (Some("a crash"), status.to_string()),
            // What was found of the others counts all the same.
            None if !status.success() => (None, format!("the hunt ended with {status}")),
            None => (None, String::new()),
        };
        let doubt = match by {
            Some(_) if bug != NONE => {
                let taken = begun.elapsed();
                match told["case"].as_str().filter(|case| is_replayed(case)).map(replay) {
                    Some(Ok(Replay::Right)) => None,
                    Some(Ok(Replay::Wrong(what))) => Some(what),
                    Some(Err(error)) => return Err(error),
                    // Without the bug there may be no such case.
                    Some(Ok(Replay::Unknown)) | None => self.repeat(before, taken, round)?,
                }
            }
            _ => None,
        };
        Ok(Hunted {
            bug: bug.clone(),
            by: by.map(Into::into),
            problem,
            doubt,
            cases: more(before.cases, "cases"),
            operations: more(before.operations, "operations"),
            faults_fired: more(before.faults_fired, "faults_fired"),
            seconds,
        })
    }

    /// Where a case has no name by which it can be tried again, hunts for as long without any bug: what is found then.
    fn repeat(&self, before: &Hunted, taken: Duration, round: u64) -> Result<Option<String>> {
        let none = Hunted { bug: NONE.into(), ..Hunted::default() };
        let found = self.hunt(&none, taken.clamp(LEAST, LEAST + PATIENCE), round)?;
        let Hunted { by, problem, .. } = found;
        Ok(by.map(|by| format!("without {}, too, there is {by}: {problem}", before.bug)))
    }

    /// Tells what became of all, the first of which is no bug.
    fn tell(&self, hunted: &[Hunted], taken: Duration) -> Result<()> {
        let (control, bugs) = (&hunted[0], &hunted[1..]);
        let sum = |of: fn(&Hunted) -> u64| hunted.iter().map(of).sum::<u64>();
        let survivors = bugs.iter().filter(|one| one.by.is_none()).count();
        let doubts = bugs.iter().filter(|one| one.doubt.is_some()).count();
        let caught = bugs.len() - survivors - doubts;
        let violations =
            survivors + doubts + usize::from(control.by.is_some() || !control.problem.is_empty());
        let mut out = output::stdout();
        if self.course.figures.json {
            let each = bugs.iter().map(|one| {
                json!({
                    "bug": one.bug, "caught_by": one.by, "cases": one.cases,
                    "seconds": one.seconds, "problem": one.problem, "doubt": one.doubt,
                })
            });
            let line = json!({
                "mode": "mutants", "cases": sum(|one| one.cases),
                "operations": sum(|one| one.operations), "faults_fired": sum(|one| one.faults_fired),
                "violations": violations, "mutants_planted": bugs.len(),
                "mutants_caught": caught, "seconds": taken.as_secs_f64(),
                "bugs": each.collect::<Vec<_>>(),
            });
            writeln!(out, "{line}")?;
        } else {
            let minutes = taken.as_secs_f64() / 60.0;
            writeln!(out, "mutants: {caught} of {} caught, {minutes:.1} min", bugs.len())?;
        }
        out.flush()?;
        if violations == 0 { Ok(()) } else { Err(violated(violations)) }
    }
}

/// What comes of a case without the bug that it caught.
enum Replay {
    Right,
    Wrong(String),
    /// There is no such case.
    Unknown,
}

fn is_replayed(case: &str) -> bool {
    case.split_once('/').is_some_and(|(mode, _)| REPLAYED.contains(&mode))
}

/// Tries the case that caught a bug again without any.
fn replay(case: &str) -> Result<Replay> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["torture", "replay", case]).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status()?;
    Ok(match status.code() {
        Some(0) => Replay::Right,
        Some(USAGE) => Replay::Unknown,
        _ => Replay::Wrong(format!("{case} goes wrong without it, too: {status}")),
    })
}

/// Whether a process was ended by what it did itself: by a panic that nobody caught, or by a signal that nobody else sends.
fn has_crashed(status: ExitStatus) -> bool {
    const ABORT: i32 = 6;
    const BUS: i32 = 7;
    const SEGMENT: i32 = 11;
    status.code() == Some(PANICKED)
        || status.signal().is_some_and(|signal| [ABORT, BUS, SEGMENT].contains(&signal))
}

/// What a process does that hunts one bug
#[derive(Args, Debug)]
pub(super) struct Mutant {
    bug: String,
    #[arg(long)]
    seconds: u64,
    #[command(flatten)]
    course: Course,
}

impl Mutant {
    pub(super) fn run(&self) -> Result<()> {
        output::print_json(&planting::hunt(self)?)
    }
}

#[cfg(not(turbidite_planted_bugs))]
mod planting {
    use super::{Failure, Mutant, Result, Value};

    fn missing() -> Failure {
        Failure::usage(
            "there are no bugs in this build: make one with RUSTFLAGS='--cfg turbidite_planted_bugs'",
        )
    }

    pub(super) fn names() -> Result<Vec<String>> {
        Err(missing())
    }

    pub(super) fn hunt(_: &Mutant) -> Result<Value> {
        Err(missing())
    }

    pub(in super::super) fn plant(_: &str) -> Result<()> {
        Err(missing())
    }
}

#[cfg(turbidite_planted_bugs)]
mod planting {
    use std::cell::Cell;
    use std::time::Duration;

    use serde_json::json;
    use turbidite::planted::Bug;
    use turbidite_torture::mutants::{Caught, Ground, Tried, hunt as hunt_by_all};
    use turbidite_torture::{Report, Violation, watch};

    use super::super::course::usage;
    use super::super::{directory, kill_in};
    use super::{Mutant, NONE, PATIENCE, Result, TOLD, Value, output};

    /// The names of all bugs.
    pub(super) fn names() -> Result<Vec<String>> {
        Ok(Bug::ALL.iter().map(ToString::to_string).collect())
    }

    fn named(name: &str) -> Result<Option<Bug>> {
        if name == NONE { Ok(None) } else { name.parse().map(Some).map_err(usage) }
    }

    /// Plants a bug in this process.
    pub(in super::super) fn plant(name: &str) -> Result<()> {
        turbidite::planted::plant(named(name)?);
        Ok(())
    }

    pub(super) fn hunt(mutant: &Mutant) -> Result<Value> {
        let Mutant { bug, seconds, course } = mutant;
        let ground =
            Ground { seed: course.seed, engines: course.engines()?, layers: course.layers()? };
        // What is left of kills in which something was wrong goes with it.
        let place = directory(None)?;
        // That no process can be killed here says nothing of the bug.
        let trouble = Cell::new(None);
        let kill = |setting, _: &(dyn Fn() -> bool + Sync)| {
            kill_in(Some(place.path()), setting, Some(bug)).unwrap_or_else(|failure| {
                trouble.set(Some(failure));
                Report::default()
            })
        };
        let time = Duration::from_secs(*seconds);
        let hanging = bug.clone();
        watch::on_hang(PATIENCE / 2, move |Violation { case, problem }| {
            let caught = json!({
                "bug": hanging, "caught_by": "a hang", "case": case, "problem": problem, "cases": 0,
            });
            // Nobody is left to tell an error to.
            drop(output::print_json(&caught));
            std::process::exit(0);
        });
        let hunted = hunt_by_all(named(bug)?, &ground, time, &kill);
        if let Some(failure) = trouble.take() {
            return Err(failure);
        }
        Ok(match hunted {
            Ok(Tried { cases, operations, faults_fired }) => json!({
                "bug": bug, "cases": cases, "operations": operations, "faults_fired": faults_fired,
            }),
            Err(Caught { by, violation, after, tried }) => {
                let problem: String =
                    violation.problem.chars().filter(|c| !c.is_control()).take(TOLD).collect();
                json!({
                    "bug": bug, "caught_by": by, "case": violation.case, "problem": problem,
                    "cases": tried.cases, "operations": tried.operations,
                    "faults_fired": tried.faults_fired, "seconds": after.as_secs_f64(),
                })
            }
        })
    }
}
