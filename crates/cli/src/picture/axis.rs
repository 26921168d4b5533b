//! Where keys stand in a bar: a step to the right for each first key of a table, so that a level of tables of one size, as
//! the deepest is, is spread evenly.

use std::ops::Range;

use turbidite::{LsmStatus, Span};

/// The keys of one tree along so many columns.
#[derive(Debug)]
pub(super) struct Axis {
    /// The first keys of all tables, each once.
    steps: Vec<Vec<u8>>,
    largest: Vec<u8>,
    columns: usize,
}

impl Axis {
    /// `None` if the tree has no tables.
    pub(super) fn new(tree: &LsmStatus, columns: usize) -> Option<Self> {
        let spans = || tree.levels.iter().flat_map(|level| &level.spans);
        let mut steps: Vec<_> = spans().map(|span| span.smallest.clone()).collect();
        steps.sort_unstable();
        steps.dedup();
        let largest = spans().map(|span| &span.largest).max()?.clone();
        Some(Self { steps, largest, columns: columns.max(1) })
    }

    /// The first and the last key.
    pub(super) fn ends(&self) -> (&[u8], &[u8]) {
        (&self.steps[0], &self.largest)
    }

    /// What stands above the bars.
    pub(super) fn title(&self, columns: usize) -> String {
        format!("{:-^columns$}", " keys ")
    }

    /// The part of the bar that a range of keys takes, in columns.
    fn part(&self, smallest: &[u8], largest: &[u8]) -> (f64, f64) {
        let until = |key: &[u8]| self.steps.partition_point(|step| &step[..] <= key);
        let from = until(smallest).saturating_sub(1);
        let to = until(largest).max(from + 1);
        let column = |step: usize| step as f64 * self.columns as f64 / self.steps.len() as f64;
        (column(from), column(to))
    }

    /// The columns that have some of a range of keys: at least one.
    pub(super) fn columns(&self, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        let (from, to) = self.part(smallest, largest);
        let from = (from as usize).min(self.columns - 1);
        from..(to.ceil() as usize).clamp(from + 1, self.columns)
    }

    /// The bytes in each column, those of a span spread over its part evenly.
    pub(super) fn densities(&self, spans: &[Span]) -> Vec<f64> {
        let mut densities = vec![0.0; self.columns];
        for span in spans {
            let (from, to) = self.part(&span.smallest, &span.largest);
            for column in self.columns(&span.smallest, &span.largest) {
                let (left, right) = (from.max(column as f64), to.min(column as f64 + 1.0));
                densities[column] += span.bytes as f64 * (right - left).max(0.0) / (to - from);
            }
        }
        densities
    }
}
