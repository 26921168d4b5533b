//! Checks value files, and that each reference of a table leads to its value.

use std::collections::BTreeMap;

use super::set::ValueFiles;
use crate::base::hash;
use crate::error::{Error, Result};
use crate::lsm::version::{TableFile, Version};
use crate::stats::VerifyReport;

/// Reads all value files, checks every record, garbage too, and adds it to the report.
pub(crate) fn verify_files(values: &ValueFiles, report: &mut VerifyReport) {
    for file in values.files() {
        report.files += 1;
        report.bytes += file.len();
        if let Err(error) = file.read(|open| open.verify()) {
            report.problems.push(error);
        }
    }
}

/// The references of a table, while it is walked over.
pub(crate) struct References<'a> {
    version: &'a Version,
    table: &'a TableFile,
    /// The bytes referred to, by the number of their file.
    found: BTreeMap<u64, u64>,
    /// The first thing that is wrong.
    problem: Option<Error>,
}

impl<'a> References<'a> {
    /// Those of `table`, which is one of `version`.
    pub(crate) fn new(version: &'a Version, table: &'a TableFile) -> Self {
        Self { version, table, found: BTreeMap::new(), problem: None }
    }

    /// Checks that the reference of `key` leads to its value.
    pub(crate) fn check(&mut self, key: &[u8], reference: &[u8]) {
        if self.problem.is_some() {
            return;
        }
        match self.version.values.locate(reference) {
            Some(place) => {
                *self.found.entry(place.file.id()).or_default() += place.record_len();
                self.problem = place.read(hash::hash64(key)).err();
            }
            None => self.problem = Some(self.wrong("a reference leads to no value file")),
        }
    }

    /// What was found of them all.
    pub(crate) fn finish(self) -> Result<()> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let told = self.table.values.iter().map(|share| (share.file.id(), share.bytes));
        if !told.eq(self.found.iter().map(|(&id, &bytes)| (id, bytes))) {
            return Err(self.wrong("the manifest does not tell which values the table refers to"));
        }
        Ok(())
    }

    fn wrong(&self, what: &str) -> Error {
        Error::corruption(&self.table.path(), 0, what)
    }
}
