//! What was tried, and what came of it.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Of how many settings all was tried that was to be.
pub const WHOLE: &str = "settings as a whole";

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The name of the case, to try it again.
    pub case: String,
    /// What was wrong.
    pub problem: String,
}

/// The sums of some cases.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many cases there were.
    pub cases: u64,
    /// What was done in them: calls of the store, or of the file system where these are what is counted.
    pub operations: u64,
    /// How often each fault had its effect.
    pub fired: BTreeMap<String, u64>,
    /// Other sums, by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// The most there was of something, by name.
    pub most: BTreeMap<&'static str, u64>,
    /// What was wrong.
    pub violations: Vec<Violation>,
}

impl Report {
    /// When so much is wrong, no more of a setting is tried.
    pub const MOST_VIOLATIONS: usize = 1000;

    /// Whether so much is wrong.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.violations.len() >= Self::MOST_VIOLATIONS
    }

    /// One case that could not go on.
    #[must_use]
    pub fn of_violation(case: impl ToString, problem: String) -> Self {
        let violations = vec![Violation { case: case.to_string(), problem }];
        Self { cases: 1, violations, ..Self::default() }
    }

    /// Adds to one of the other sums.
    pub fn count(&mut self, name: &'static str, more: u64) {
        *self.counts.entry(name).or_default() += more;
    }

    /// Notes that there was so much of something.
    pub fn peak(&mut self, name: &'static str, there: u64) {
        let most = self.most.entry(name).or_default();
        *most = there.max(*most);
    }

    /// Notes that a fault had its effect so many times.
    pub fn fire(&mut self, fault: impl Into<String>, times: u64) {
        *self.fired.entry(fault.into()).or_default() += times;
    }

    /// How many faults had their effect.
    #[must_use]
    pub fn faults_fired(&self) -> u64 {
        self.fired.values().sum()
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.cases += other.cases;
        self.operations += other.operations;
        other.fired.into_iter().for_each(|(fault, times)| self.fire(fault, times));
        other.counts.into_iter().for_each(|(name, more)| self.count(name, more));
        other.most.into_iter().for_each(|(name, there)| self.peak(name, there));
        self.violations.extend(other.violations);
    }
}
