//! `turbidite torture mutants`

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

pub(super) use self::planting::plant;
use super::violated;
use crate::failure::{Failure, Result};
use crate::output::{self, Figures};

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
/// a hunt with no bug, which must find nothing. A bug that is not noticed is a hole in the torture, and the exit code is 1.
#[derive(Args, Debug)]
pub(super) struct Mutants {
    /// Hunt each bug for so many minutes at most
    #[arg(long, default_value_t = 2.0, value_name = "N")]
    minutes: f64,
    /// The first seed
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Only these bugs, by name
    #[arg(long, value_name = "BUG", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    figures: Figures,
}

/// What became of a bug.
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
        let time = Duration::try_from_secs_f64(self.minutes * 60.0)
            .map_err(|_| Failure::usage("--minutes must be a number that is not negative"))?;
        let all = planting::names()?;
        if let Some(unknown) = self.only.iter().find(|name| !all.contains(name)) {
            return Err(Failure::usage(format!(
                "unknown bug {unknown:?}: one of {}",
                all.join(", ")
            )));
        }
        let is_chosen = |name: &String| self.only.is_empty() || self.only.contains(name);
        let begun = Instant::now();
        let control = self.hunt(NONE, time)?;
        if control.by.is_some() {
            return Err(Failure::negative(format!("without any bug: {}", control.problem)));
        }
        let mut hunted = vec![control];
        for name in all.iter().filter(|name| is_chosen(name)) {
            let one = self.hunt(name, time)?;
            if !self.figures.json {
                anstream::println!("{}", one.sentence());
            }
            hunted.push(one);
        }
        self.tell(&hunted, begun.elapsed())
    }

    /// Hunts a bug in another process.
    fn hunt(&self, bug: &str, time: Duration) -> Result<Hunted> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["torture", "mutant", bug])
            .args(["--seconds", &time.as_secs().to_string(), "--seed", &self.seed.to_string()])
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
        let seconds = begun.elapsed().as_secs_f64();
        let cases = told["cases"].as_u64().unwrap_or_default();
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
        Ok(Hunted { bug: bug.into(), by: by.map(Into::into), problem, cases, seconds })
    }

    fn tell(&self, hunted: &[Hunted], taken: Duration) -> Result<()> {
        let bugs = &hunted[1..];
        let cases: u64 = hunted.iter().map(|one| one.cases).sum();
        let survivors: Vec<_> = bugs.iter().filter(|one| one.by.is_none()).collect();
        let caught = bugs.len() - survivors.len();
        let mut out = output::stdout();
        if self.figures.json {
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
    #[arg(long)]
    seed: u64,
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
    use turbidite_torture::mutants::{Caught, hunt as hunt_by_all};

    use super::super::{directory, kill_in, usage};
    use super::{Mutant, NONE, Result, TOLD, Value};

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
        let Mutant { bug, seconds, seed } = mutant;
        let place = directory(None)?;
        let time = Duration::from_secs(*seconds);
        let kill =
            |setting, _: &(dyn Fn() -> bool + Sync)| kill_in(place.path(), setting, Some(bug));
        Ok(match hunt_by_all(named(bug)?, *seed, time, &kill) {
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
