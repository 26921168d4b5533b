//! What one process does, as plain data: a system and what is done to it. Two results belong to one row if their jobs are
//! equal.

use serde::{Deserialize, Serialize};

use crate::systems::Setup;

/// A job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Job {
    /// A system of ours or a peer in this process.
    Store { setup: Setup, load: Load },
    /// Tkrzw's own tool, which has its own loop.
    Tkrzw { file: String, arguments: Vec<String> },
}

impl Job {
    /// The name of the system.
    pub(crate) fn system(&self) -> &str {
        match self {
            Self::Store { setup, .. } => &setup.system,
            Self::Tkrzw { .. } => "tkrzw",
        }
    }

    /// How many records it begins with, or how many sets Tkrzw's tool does.
    pub(crate) fn records(&self) -> u64 {
        match self {
            Self::Store { load, .. } => u64::from(load.records),
            Self::Tkrzw { arguments, .. } => count(arguments, "--iter"),
        }
    }

    /// The bytes of the key and the value of a record.
    pub(crate) fn record_bytes(&self) -> u64 {
        match self {
            Self::Store { load, .. } => load.record_bytes(),
            // The keys of the tool have 8 digits.
            Self::Tkrzw { arguments, .. } => count(arguments, "--size") + 8,
        }
    }

    /// About how many bytes it needs on disk at once.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let records = match self {
            Self::Store { load, .. } => load.records_in_the_end(),
            Self::Tkrzw { .. } => self.records(),
        };
        // Stores that merge or copy on write need their data twice for a while, with logs and reserves.
        4 * records * self.record_bytes() + (256 << 20)
    }
}

/// The number that follows `name` in the arguments of a tool; 0 if there is none.
fn count(arguments: &[String], name: &str) -> u64 {
    let text = arguments.iter().skip_while(|word| *word != name).nth(1);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// What keys are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keys {
    /// So many decimal digits.
    Digits(u32),
    /// A u64, big-endian.
    Binary,
}

impl Keys {
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Digits(digits) => digits as usize,
            Self::Binary => 8,
        }
    }
}

/// In which order records are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Ascending.
    Sequential,
    /// All orders equally likely.
    Shuffled,
    /// The one that the write-path study calls shuffled.
    Study,
    /// Drawn with replacement: 63 % of the records, 37 % of them again.
    Replaced,
    /// Drawn, each of all records.
    Uniform,
    /// Zipf draws (0.99), spread over all records.
    Skewed,
    /// Drawn, nine of ten from a hundredth of the records that are neighbours.
    Hot,
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    Put,
    /// Gets keys, of which all are there that were put.
    Get,
    /// Gets keys between those that are there.
    Miss,
    /// Gets both, in turns: half of them are there.
    Half,
    /// Walks over all records.
    Scan,
    /// The same backwards.
    Reverse,
    Delete,
    /// Closes and opens.
    Reopen,
    /// A mix of the Yahoo! Cloud Serving Benchmark, with Zipf draws.
    Ycsb(Mix),
}

impl Act {
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Put | Self::Delete) || matches!(self, Self::Ycsb(mix) if mix != Mix::C)
    }
}

/// The mixes of YCSB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Mix {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads of what came last, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 records, 5 % inserts.
    E,
    /// Half reads, half reads with an update of the same record.
    F,
}

/// One step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    /// What its figures are found by: unique among the steps of a load.
    pub(crate) name: String,
    pub(crate) act: Act,
    pub(crate) order: Order,
    /// How many operations; `None` for one for each record.
    pub(crate) operations: Option<u32>,
    /// How many operations one call does.
    pub(crate) batch: u32,
    pub(crate) threads: u32,
    /// Whether the time includes all being in the system's own files.
    pub(crate) persists: bool,
    /// Whether the moments at which parts of it were done are kept, so that its course can be drawn.
    #[serde(default)]
    pub(crate) course: bool,
}

impl Step {
    pub(crate) fn new(name: &str, act: Act, order: Order) -> Self {
        let name = name.to_owned();
        Self {
            name,
            act,
            order,
            operations: None,
            batch: 1,
            threads: 1,
            persists: false,
            course: false,
        }
    }

    #[must_use]
    pub(crate) fn operations(mut self, count: u32) -> Self {
        self.operations = Some(count);
        self
    }

    #[must_use]
    pub(crate) fn batch(mut self, operations: u32) -> Self {
        self.batch = operations;
        self
    }

    #[must_use]
    pub(crate) fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    #[must_use]
    pub(crate) fn persists(mut self) -> Self {
        self.persists = true;
        self
    }

    #[must_use]
    pub(crate) fn course(mut self) -> Self {
        self.course = true;
        self
    }
}

/// What is inside the clock besides the system's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Inside {
    /// Nothing: keys are made before.
    Nothing,
    /// Making each key.
    Formatting,
    /// What the write-path study had: making each key, closing, and removing the directory.
    Study,
}

/// What is done to a system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) records: u32,
    pub(crate) keys: Keys,
    pub(crate) value_size: u32,
    /// The share of random bytes in values; with 0 all are the same byte.
    pub(crate) entropy: f64,
    pub(crate) inside: Inside,
    /// How many operations share one look at the clock.
    pub(crate) latency_run: u32,
    pub(crate) seed: u64,
    pub(crate) steps: Vec<Step>,
}

impl Load {
    pub(crate) fn new(records: u32, steps: Vec<Step>) -> Self {
        Self {
            records,
            keys: Keys::Digits(16),
            value_size: 100,
            entropy: 1.0,
            inside: Inside::Nothing,
            latency_run: 16,
            seed: 1,
            steps,
        }
    }

    /// The bytes of a record's key and value.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.keys.size() as u64 + u64::from(self.value_size)
    }

    fn records_in_the_end(&self) -> u64 {
        let inserts = self.steps.iter().filter(|step| matches!(step.act, Act::Ycsb(_)));
        let inserts: u64 =
            inserts.map(|step| u64::from(step.operations.unwrap_or(self.records))).sum();
        u64::from(self.records) + inserts / 20
    }
}
