//! `turbidite torture mutants`

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

pub(super) use self::planting::plant;
use super::course::{Course, violated};
use crate::failure::{Failure, Result};
use crate::output;

/// How long it lasts if nothing is said.
const MINUTES: f64 = 30.0;
/// What one hunt has at least, and the one without any bug at most,
const LEAST: Duration = Duration::from_secs(5);
const CONTROL: Duration = Duration::from_secs(60);
/// which is that part of all the time.
const CONTROL_PART: u32 = 10;
/// A hunt that takes so much longer than it may hangs, which is noticed, too.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name of no bug.
const NONE: &str = "none";
/// The exit code of a process that has panicked.
const PANICKED: i32 = 101;
/// How much of what was wrong is told, which a pipe can hold.
#[cfg(turbidite_planted_bugs)]
const TOLD: usize = 100;

/// Plant bugs in the store, one after the other, and see whether the other modes notice each
///
/// Needs a build with the bugs in it: RUSTFLAGS='--cfg turbidite_planted_bugs'. Each bug is hunted in a process of its own, by all modes but `soak` in turn. First there is
/// a hunt with no bug, which must find nothing. The minutes are for all bugs together: those that nobody has noticed are hunted again, from other seeds on, until
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
    cases: u64,
    seconds: f64,
}

impl Hunted {
    fn sentence(&self) -> String {
        let Self { bug, by, problem, cases, seconds } = self;
        match by {
            Some(by) => format!("{bug}: caught by {by} after {seconds:.1} s: {problem}"),
            None => format!("{bug}: not caught in {cases} cases, {seconds:.1} s"),
        }
    }
}

impl Mutants {
    pub(super) fn run(&self) -> Result<()> {
        let time = self.course.time(MINUTES)?;
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
        hunted[0] = self.hunt(&hunted[0], (time / CONTROL_PART).clamp(LEAST, CONTROL), 0)?;
        if hunted[0].by.is_some() {
            return Err(Failure::negative(format!("without any bug: {}", hunted[0].problem)));
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
        let cases = before.cases + told["cases"].as_u64().unwrap_or_default();
        let (by, problem) = match told["caught_by"].as_str() {
            Some(by) => (Some(by), format!("{}: {}", told["case"], told["problem"])),
            None if hangs => (Some("a hang"), String::new()),
            // Killed by a signal, or a panic that nobody caught.
            None if matches!(status.code(), None | Some(PANICKED)) => {
                (Some("a crash"), status.to_string())
            }
            None if !status.success() => {
                return Err(Failure::usage(format!("the hunt for {bug} ended with {status}")));
            }
            None => (None, String::new()),
        };
        Ok(Hunted { bug: bug.clone(), by: by.map(Into::into), problem, cases, seconds })
    }

    fn tell(&self, hunted: &[Hunted], taken: Duration) -> Result<()> {
        let bugs = &hunted[1..];
        let cases: u64 = hunted.iter().map(|one| one.cases).sum();
        let survivors: Vec<_> = bugs.iter().filter(|one| one.by.is_none()).collect();
        let caught = bugs.len() - survivors.len();
        let mut out = output::stdout();
        if self.course.figures.json {
            let each = bugs.iter().map(|one| {
                json!({
                    "bug": one.bug, "caught_by": one.by, "cases": one.cases,
                    "seconds": one.seconds, "problem": one.problem,
                })
            });
            let line = json!({
                "mode": "mutants", "cases": cases, "operations": 0, "faults_fired": 0,
                "violations": survivors.len(), "mutants_planted": bugs.len(),
                "mutants_caught": caught, "seconds": taken.as_secs_f64(),
                "bugs": each.collect::<Vec<_>>(),
            });
            writeln!(out, "{line}")?;
        } else {
            let minutes = taken.as_secs_f64() / 60.0;
            writeln!(out, "mutants: {caught} of {} caught, {minutes:.1} min", bugs.len())?;
        }
        out.flush()?;
        if survivors.is_empty() { Ok(()) } else { Err(violated(survivors.len())) }
    }
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
    use std::time::Duration;

    use serde_json::json;
    use turbidite::planted::Bug;
    use turbidite_torture::mutants::{Caught, Ground, hunt as hunt_by_all};
    use turbidite_torture::{Violation, watch};

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
        let kill = |setting, _: &(dyn Fn() -> bool + Sync)| {
            kill_in(Some(place.path()), setting, Some(bug))
                .unwrap_or_else(|failure| panic!("no kill: {}", failure.message))
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
        Ok(match hunt_by_all(named(bug)?, &ground, time, &kill) {
            Ok(cases) => json!({"bug": bug, "cases": cases}),
            Err(Caught { by, violation, after, cases }) => {
                let problem: String =
                    violation.problem.chars().filter(|c| !c.is_control()).take(TOLD).collect();
                json!({
                    "bug": bug, "caught_by": by, "case": violation.case, "problem": problem,
                    "cases": cases, "seconds": after.as_secs_f64(),
                })
            }
        })
    }
}
