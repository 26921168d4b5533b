//! Runs the rows of a table: those of one workload in turns, A B A B, so that what changes on the machine meets all of them;
//! each in a process of its own, so that none finds the caches of another.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::progress::Progress;
use super::results::{End, Record, Results};
use super::selection::Selection;
use super::{child, process};
use crate::failure::{Exit, Failure, Result};
use crate::systems;
use crate::tables::{Row, Scale, Table};

/// How a table is run.
#[derive(Debug)]
pub(crate) struct Driver<'a> {
    pub(crate) results: &'a Results,
    pub(crate) scale: Scale,
    pub(crate) selection: &'a Selection<'a>,
    /// Where systems have their files.
    pub(crate) data: &'a Path,
    /// Which build of this program this is.
    pub(crate) build: &'a str,
    /// A run that takes longer is ended, and counts as failed; its row is not run again with this limit.
    pub(crate) limit: Option<Duration>,
    /// Whether rows that have failed as often as they are to be run are tried once more.
    pub(crate) again: bool,
}

/// The directory of the system that is run, in that for data. It is removed before each run and after it.
pub(crate) const SYSTEM: &str = "system";

impl Driver<'_> {
    /// Runs what of `table` has not been run; gives why runs failed that did.
    ///
    /// # Errors
    /// Whatever would fail in each run that follows, too: no space above all.
    pub(crate) fn run(&self, table: &Table) -> Result<Vec<Exit>> {
        let rows: Vec<&Row> = table.rows.iter().filter(|row| self.selection.has(row)).collect();
        let mut known = self.results.read(table.name)?;
        let missing = self.tell_missing(table, &rows, &mut known)?;
        let rows: Vec<&Row> =
            rows.into_iter().filter(|row| !missing.contains_key(row.job.system())).collect();
        let left: Vec<(&Row, u32)> =
            rows.into_iter().map(|row| (row, self.left(row, &known))).collect();
        self.tell_given_up(table, &left, &known);
        let mut progress = Progress::new(table.name, self.scale, left.clone());
        let mut failures = Vec::new();
        let mut too_long = BTreeSet::new();
        for group in left.chunk_by(|a, b| a.0.workload == b.0.workload) {
            let most = group.iter().map(|(_, runs)| *runs).max().unwrap_or(0);
            for round in 0..most {
                for &(row, runs) in group {
                    if round >= runs || too_long.contains(&row.id) {
                        continue;
                    }
                    let before = self.ends(row, &known).0;
                    progress.tell(row, (before + 1, row.rounds), &known);
                    let (record, failure) = self.run_row(row)?;
                    self.results.add(table.name, &record)?;
                    let seconds = Duration::from_secs_f64(record.seconds);
                    // What a run has left that had to be ended.
                    child::clear(&self.data.join(SYSTEM))?;
                    known.push(record);
                    progress.ended(row);
                    let Some(failure) = failure else { continue };
                    if self.limit.is_some_and(|limit| seconds >= limit) {
                        too_long.insert(&row.id);
                        progress.given_up(row);
                    }
                    if failure.exit() == Exit::Io {
                        return Err(failure);
                    }
                    anstream::eprintln!("turbidite-compare: {}: {failure}", row.id);
                    failures.push(failure.exit());
                }
            }
        }
        progress.end();
        Ok(failures)
    }

    /// How many runs of a row have succeeded, and how many have failed.
    fn ends(&self, row: &Row, known: &[Record]) -> (u32, u32) {
        let known = known.iter().filter(|record| {
            record.row == row.id && record.job == row.job && record.scale == self.scale
        });
        known.fold((0, 0), |(succeeded, failed), record| match record.end {
            End::Measured(_) => (succeeded + 1, failed),
            End::Failed(_) => (succeeded, failed + 1),
            End::Missing(_) => (succeeded, failed),
        })
    }

    /// How often a row is still to be run. One that has failed as often as it is to be run is given up, until it is to be
    /// tried again.
    fn left(&self, row: &Row, known: &[Record]) -> u32 {
        let (succeeded, failed) = self.ends(row, known);
        let wanted = row.rounds.saturating_sub(succeeded);
        let left = wanted.min(row.rounds.saturating_sub(failed));
        if self.again && failed > 0 { left.max(wanted.min(1)) } else { left }
    }

    /// Says how many rows are not tried again.
    fn tell_given_up(&self, table: &Table, left: &[(&Row, u32)], known: &[Record]) {
        let is_given_up =
            |(row, left): &&(&Row, u32)| *left == 0 && self.ends(row, known).0 < row.rounds;
        let count = left.iter().filter(is_given_up).count();
        if count > 0 {
            anstream::eprintln!(
                "turbidite-compare: {}: {count} rows have failed as often as they are to be run: --again tries them once more",
                table.name
            );
        }
    }

    /// Says which systems are missing, and keeps that for the report.
    fn tell_missing(
        &self,
        table: &Table,
        rows: &[&Row],
        known: &mut Vec<Record>,
    ) -> Result<BTreeMap<String, String>> {
        let mut missing = BTreeMap::new();
        for row in rows {
            let system = row.job.system();
            if missing.contains_key(system) {
                continue;
            }
            let Some(why) = systems::kind(system)?.missing() else { continue };
            anstream::eprintln!(
                "turbidite-compare: {}: {system} is left out: it is {why}",
                table.name
            );
            missing.insert(system.to_owned(), why);
        }
        for row in rows {
            let Some(why) = missing.get(row.job.system()) else { continue };
            let is_known = known.iter().any(|record| {
                record.row == row.id && record.job == row.job && record.scale == self.scale
            });
            if !is_known {
                let end = End::Missing(why.clone());
                let record = self.record(row, 0.0, end);
                self.results.add(table.name, &record)?;
                known.push(record);
            }
        }
        Ok(missing)
    }

    fn record(&self, row: &Row, seconds: f64, end: End) -> Record {
        let build = self.build.to_owned();
        Record { row: row.id.clone(), scale: self.scale, job: row.job.clone(), seconds, build, end }
    }

    /// Runs a row once. That the system fails is a result too.
    fn run_row(&self, row: &Row) -> Result<(Record, Option<Failure>)> {
        let system = self.data.join(SYSTEM);
        // What a run has left that was cut short.
        child::clear(&system)?;
        check_space(self.data, row.job.disk_bytes())?;
        let start = Instant::now();
        let (end, failure) = match process::carry_out(&row.job, &system, self.limit) {
            Ok(outcome) => (End::Measured(outcome), None),
            Err(failure) => (End::Failed(failure.to_string()), Some(failure)),
        };
        Ok((self.record(row, start.elapsed().as_secs_f64(), end), failure))
    }
}

/// Refuses to start what would fill the device.
fn check_space(data: &Path, needed: u64) -> Result<()> {
    std::fs::create_dir_all(data).map_err(|error| Failure::io("create", data, &error))?;
    let free = rustix::fs::statvfs(data).map(|found| found.f_bavail * found.f_frsize);
    let free = free.map_err(|error| Failure::io("look at the space of", data, &error.into()))?;
    if free >= needed {
        return Ok(());
    }
    Err(Failure::io(
        "run in",
        data,
        &io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{} MiB are free and {} MiB may be needed", free >> 20, needed >> 20),
        ),
    ))
}

/// What tells this build of the program from others: a hash of it.
pub(crate) fn build() -> Result<String> {
    let failed = |path: &Path, error: io::Error| Failure::io("read", path, &error);
    let program =
        std::env::current_exe().map_err(|error| failed(Path::new("this program"), error))?;
    let bytes = std::fs::read(&program).map_err(|error| failed(&program, error))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_has_no_room_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        check_space(dir.path(), 1).unwrap();
        let refused = check_space(dir.path(), u64::MAX).unwrap_err();
        assert_eq!(refused.exit(), Exit::Io);
        let refused = refused.to_string();
        assert!(refused.contains("may be needed: free some space"), "{refused}");
    }
}
