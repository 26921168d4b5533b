//! The line that says how far a table is, and about how long the rest will take.

use std::time::{Duration, Instant};

use super::results::Record;
use crate::tables::{Row, Scale};

/// How far the runs of a table are.
pub(super) struct Progress<'a> {
    table: &'static str,
    scale: Scale,
    start: Instant,
    all: u32,
    /// The rows, each with how many runs of it are left.
    left: Vec<(&'a Row, u32)>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(table: &'static str, scale: Scale, left: Vec<(&'a Row, u32)>) -> Self {
        let all = left.iter().map(|(_, runs)| runs).sum();
        Self { table, scale, start: Instant::now(), all, left }
    }

    /// Says that a run of `row` begins, which is so many of so many.
    pub(super) fn tell(&self, row: &Row, (round, of): (u32, u32), known: &[Record]) {
        let last = known.iter().rev().find(|record| is_of(record, row, self.scale));
        let usual =
            last.map_or(String::new(), |record| format!(", {:.1} s the last time", record.seconds));
        let left: u32 = self.left.iter().map(|(_, runs)| runs).sum();
        let remains = seconds_left(&self.left, self.scale, known)
            .map_or(String::new(), |seconds| format!("; about {} left", in_words(seconds)));
        anstream::eprintln!(
            "turbidite-compare: {} {}/{}: {}, {}, round {round} of {of}{usual}{remains}",
            self.table,
            self.all - left + 1,
            self.all,
            row.workload,
            row.label,
        );
    }

    /// A run of `row` has ended.
    pub(super) fn ended(&mut self, row: &Row) {
        if let Some((_, runs)) = self.left.iter_mut().find(|(known, _)| known.id == row.id) {
            *runs = runs.saturating_sub(1);
        }
    }

    /// `row` is not run any more.
    pub(super) fn given_up(&mut self, row: &Row) {
        if let Some(place) = self.left.iter().position(|(known, _)| known.id == row.id) {
            self.all -= self.left.remove(place).1;
        }
    }

    pub(super) fn end(&self) {
        let seconds = in_words(self.start.elapsed());
        anstream::eprintln!("turbidite-compare: {}: {} runs in {seconds}", self.table, self.all);
    }
}

/// About how long the runs that are left will take; `None` if nothing is known of some of them.
fn seconds_left(left: &[(&Row, u32)], scale: Scale, known: &[Record]) -> Option<Duration> {
    let left = left.iter().filter(|(_, runs)| *runs > 0);
    let seconds = left.map(|(row, runs)| Some(f64::from(*runs) * usual(row, scale, known)?));
    seconds.sum::<Option<f64>>().map(Duration::from_secs_f64)
}

/// How long a run of `row` takes: the mean of those before, or else as long for each record as others of the same system, or
/// of any system.
fn usual(row: &Row, scale: Scale, known: &[Record]) -> Option<f64> {
    let ran = || known.iter().filter(|record| record.seconds > 0.0);
    let ours: Vec<f64> =
        ran().filter(|record| is_of(record, row, scale)).map(|record| record.seconds).collect();
    if !ours.is_empty() {
        return Some(ours.iter().sum::<f64>() / ours.len() as f64);
    }
    let each = |system: Option<&str>| {
        let others = ran().filter(|record| system.is_none_or(|name| record.job.system() == name));
        let (seconds, records) = others.fold((0.0, 0), |(seconds, records), record| {
            (seconds + record.seconds, records + record.job.records())
        });
        (records > 0).then(|| seconds / records as f64)
    };
    let each = each(Some(row.job.system())).or_else(|| each(None))?;
    Some(each * row.job.records() as f64)
}

fn is_of(record: &Record, row: &Row, scale: Scale) -> bool {
    record.seconds > 0.0 && record.row == row.id && record.scale == scale && record.job == row.job
}

fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::outcome::Outcome;
    use crate::run::results::End;
    use crate::tables;

    #[test]
    fn runs_that_are_left_take_what_such_runs_took() {
        let rows = tables::table("scale", Scale::Quick).unwrap().rows;
        let row = |id: &str| rows.iter().find(|row| row.id == id).unwrap();
        let record = |id: &str, seconds| Record {
            row: id.to_owned(),
            scale: Scale::Quick,
            job: row(id).job.clone(),
            seconds,
            build: String::new(),
            end: End::Measured(Outcome::default()),
        };
        let left = [(row("100k/redb"), 2), (row("1M/redb"), 1), (row("1M/fjall"), 0)];
        let seconds = |known: &[Record]| {
            seconds_left(&left, Scale::Quick, known).map(|time| time.as_secs_f64().round())
        };
        assert_eq!(seconds(&[]), None);
        // Of another system: 10 s for 100,000 records.
        let other = record("100k/fjall", 10.0);
        assert_eq!(seconds(std::slice::from_ref(&other)), Some(2.0 * 10.0 + 100.0));
        // Of the same one: 3 s for 300,000.
        let same = record("300k/redb", 3.0);
        assert_eq!(seconds(&[other.clone(), same.clone()]), Some(2.0 * 1.0 + 10.0));
        // Of the row itself.
        let known = [other, same, record("1M/redb", 50.0), record("1M/redb", 70.0)];
        let each = (3.0 + 120.0) / 2.3e6;
        assert_eq!(seconds(&known), Some((2e5 * each + 60.0_f64).round()));
    }
}
