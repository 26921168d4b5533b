//! A row of a table: one system, set up in one way, under one workload.

use crate::run::job::{Act, Inside, Job, Load};
use crate::systems::Setup;

/// A figure of a study that our own stands beside.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Seed {
    pub(crate) step: String,
    pub(crate) operations_per_second: f64,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    /// Unique in the table.
    pub(crate) id: String,
    /// What is done, in words: the same for rows that are compared.
    pub(crate) workload: String,
    /// The system and how it is set up, in words.
    pub(crate) label: String,
    pub(crate) job: Job,
    pub(crate) rounds: u32,
    pub(crate) seeds: Vec<Seed>,
}

impl Row {
    pub(crate) fn new(id: String, workload: &str, label: &str, job: Job, rounds: u32) -> Self {
        let (workload, label) = (workload.to_owned(), label.to_owned());
        Self { id, workload, label, job, rounds, seeds: Vec::new() }
    }

    pub(crate) fn store(
        id: String,
        workload: &str,
        label: &str,
        (setup, load): (Setup, Load),
        rounds: u32,
    ) -> Self {
        Self::new(id, workload, label, Job::Store { setup, load }, rounds)
    }

    /// The same with a figure of a study for a step.
    #[must_use]
    pub(crate) fn seed(mut self, step: &str, operations_per_second: f64) -> Self {
        self.seeds.push(Seed { step: step.to_owned(), operations_per_second });
        self
    }

    pub(crate) fn seed_of(&self, step: &str) -> Option<f64> {
        let found = self.seeds.iter().find(|seed| seed.step == step);
        found.map(|seed| seed.operations_per_second)
    }

    /// The bytes of the key and the value of a record.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.job.record_bytes()
    }

    /// The names of its steps.
    pub(crate) fn steps(&self) -> Vec<&str> {
        match &self.job {
            // What is opened again is closed before.
            Job::Store { load, .. } => load
                .steps
                .iter()
                .flat_map(|step| {
                    let close = (step.act == Act::Reopen).then_some("close");
                    close.into_iter().chain([step.name.as_str()])
                })
                .collect(),
            Job::Tkrzw { .. } => vec!["set", "get"],
        }
    }

    /// Whether a step is done once, so that it has a time and no rate.
    pub(crate) fn is_once(&self, step: &str) -> bool {
        let Job::Store { load, .. } = &self.job else { return false };
        let mut reopens = load.steps.iter().filter(|known| known.act == Act::Reopen);
        reopens.any(|known| known.name == step || step == "close")
    }

    /// Whether a step writes, and the system is waited for until it has nothing left to do for it.
    pub(crate) fn settles(&self, step: &str) -> bool {
        let Job::Store { setup, load } = &self.job else { return false };
        let is_waited_for =
            !matches!(setup.system.as_str(), "vec" | "skipmap" | "vec-log" | "skipmap-log");
        let mut steps = load.steps.iter().filter(|known| known.name == step);
        is_waited_for && load.inside != Inside::Study && steps.any(|known| known.act.writes())
    }

    /// Whether the bytes that can be read are told: Tkrzw's skip database counts a record that was put twice as two.
    pub(crate) fn tells_live_bytes(&self) -> bool {
        !matches!(&self.job, Job::Tkrzw { file, .. } if file.ends_with(".tks"))
    }

    /// What else was chosen; empty for nothing.
    pub(crate) fn options(&self) -> String {
        match &self.job {
            Job::Tkrzw { arguments, .. } => arguments.join(" "),
            Job::Store { setup, .. } => {
                let options = setup.options.iter().map(|(name, value)| format!("{name} {value}"));
                options.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// What memory it was given, in words.
    pub(crate) fn memory(&self) -> String {
        match &self.job {
            Job::Tkrzw { .. } => "what its tool takes, and the system's page cache".to_owned(),
            Job::Store { setup, .. } => match setup.system.as_str() {
                "lmdb" => "the system's page cache".to_owned(),
                "vec" | "skipmap" | "file" => "all it takes".to_owned(),
                "vec-log" | "skipmap-log" => {
                    format!("tables of {} MiB, up to 4", setup.memtable() >> 20)
                }
                "redb" => format!("{} MiB, all of it cache", setup.memory >> 20),
                _ => format!(
                    "{} MiB, of it memtables of {}",
                    setup.memory >> 20,
                    setup.memtable() >> 20
                ),
            },
        }
    }

    /// What its writes survive, in words.
    pub(crate) fn durability(&self) -> String {
        match &self.job {
            Job::Tkrzw { .. } => "none: no log".to_owned(),
            Job::Store { setup, .. } => setup.durability_in_words(),
        }
    }

    /// What is in its clock besides the system, in words; empty for nothing.
    pub(crate) fn inside(&self) -> &'static str {
        match &self.job {
            Job::Store { load, .. } => match load.inside {
                Inside::Nothing => "",
                Inside::Formatting => "keys are made inside the clock",
                Inside::Study => {
                    "the study's clock: keys are made, the system closed and its files removed inside it"
                }
            },
            Job::Tkrzw { .. } => "keys and random numbers are made inside the clock",
        }
    }
}
