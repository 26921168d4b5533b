//! Which keys records have, and which of them a phase uses.

use clap::ValueEnum;
use turbidite_workload::draws;

use super::{Order, Phase, Plan};

/// What keys are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Keys {
    /// Even numbers, each stored once; the odd ones between them are never there
    Number,
    /// Eight digits, drawn from 1 to N with replacement for each operation of each phase: 63 % of them are
    /// stored, and 37 % of the gets are misses
    Study,
}

impl Keys {
    /// How many bytes all keys have, if that is no choice.
    pub(crate) fn fixed_size(self) -> Option<u32> {
        match self {
            Self::Number => None,
            Self::Study => Some(8),
        }
    }

    /// The largest number that is a key with `records` records.
    pub(crate) fn largest(self, records: u32) -> u64 {
        match self {
            Self::Number => 2 * u64::from(records) - 1,
            Self::Study => u64::from(records),
        }
    }

    /// The key of `record`, counted from 0.
    pub(super) fn of_record(self, record: u32) -> u64 {
        match self {
            Self::Number => 2 * u64::from(record),
            Self::Study => u64::from(record) + 1,
        }
    }

    /// The records of the operations of a phase, in their order. `stream` tells repeated phases apart.
    pub(super) fn draw(self, plan: &Plan, phase: Phase, stream: u32) -> Vec<u32> {
        let stream = u64::from(stream);
        let Plan { records, seed, .. } = *plan;
        let once = matches!(phase, Phase::Fill | Phase::Delete);
        match (self, plan.order) {
            (Self::Study, _) => draws::with_replacement(records, seed, stream),
            (Self::Number, Order::Sequential) => (0..records).collect(),
            (Self::Number, Order::Skewed) if !once => draws::skewed(records, records, seed, stream),
            (Self::Number, Order::Random | Order::Skewed) => draws::shuffled(records, seed, stream),
        }
    }
}

/// The key behind that of a record with the keys [`Keys::Number`]: it is never there.
pub(super) fn absent(record: u32) -> u64 {
    Keys::Number.of_record(record) + 1
}
