//! The study's SkipMap log: records in crossbeam-skiplist's map, which is in order at any time. As in the study it sits in a
//! mutex although it does not need one, and what is written is a copy of it.

use std::path::Path;

use crossbeam_skiplist::SkipMap;

use super::writepath::{LogEntry, Table, WritePath};
use super::{Choices, Setup, System};
use crate::failure::Result;

#[derive(Default)]
struct Entries(SkipMap<Vec<u8>, Vec<u8>>);

impl Table for Entries {
    const NAME: &'static str = "skipmap-log";

    fn put(&mut self, entry: LogEntry) {
        self.0.insert(entry.key, entry.value);
    }

    fn entries(self) -> Vec<LogEntry> {
        let copy = self.0.iter();
        copy.map(|entry| LogEntry { key: entry.key().clone(), value: entry.value().clone() })
            .collect()
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
