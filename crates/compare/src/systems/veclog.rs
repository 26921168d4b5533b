//! The study's Vec log: records in the order in which they come. It never sorts, never drops what was written over, and
//! cannot be read.

use std::path::Path;

use super::writepath::{LogEntry, Table, WritePath};
use super::{Choices, Setup, System};
use crate::failure::Result;

#[derive(Default)]
struct Entries(Vec<LogEntry>);

impl Table for Entries {
    const NAME: &'static str = "vec-log";

    fn put(&mut self, entry: LogEntry) {
        self.0.push(entry);
    }

    fn entries(self) -> Vec<LogEntry> {
        self.0
    }
}

pub(super) fn open(
    setup: &Setup,
    choices: &mut Choices<'_>,
    path: &Path,
) -> Result<Box<dyn System>> {
    let threshold = choices.take("threshold")?.unwrap_or_else(|| setup.memtable());
    Ok(Box::new(WritePath::<Entries>::open(path, threshold)))
}
