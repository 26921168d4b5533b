//! The results of all tables, as claims look them up.

use super::summary::{Spread, Summary};
use crate::failure::Result;
use crate::run::results::Results;
use crate::tables::{self, Measure, Scale, Table};

/// A table with the results that are kept of it.
#[derive(Debug)]
pub(crate) struct Chapter {
    pub(crate) table: Table,
    pub(crate) scale: Scale,
    pub(crate) summary: Summary,
}

/// All tables that were run.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) chapters: Vec<Chapter>,
}

impl Book {
    /// What is kept in a directory: of each table the largest scale that was run.
    pub(crate) fn of(results: &Results) -> Result<Self> {
        let mut chapters = Vec::new();
        for name in tables::NAMES {
            for scale in [Scale::Full, Scale::Quick, Scale::Smoke] {
                let table = tables::table(name, scale)?;
                let summary = Summary::of(&table, results, scale);
                if !summary.is_empty() {
                    chapters.push(Chapter { table, scale, summary });
                    break;
                }
            }
        }
        Ok(Self { chapters })
    }

    /// The chapter of `table`, unless its figures mean nothing.
    fn chapter(&self, table: &str) -> Option<&Chapter> {
        let mut measured = self.chapters.iter().filter(|chapter| chapter.scale > Scale::Smoke);
        measured.find(|chapter| chapter.table.name == table)
    }

    fn spread(&self, table: &str, row: &str, step: &str, measure: Measure) -> Option<Spread> {
        self.chapter(table)?.summary.spread(row, step, measure)
    }

    /// Operations per second of the last row of `table`, which is the largest, whose name begins and ends like this and
    /// that has figures.
    pub(crate) fn rate(&self, table: &str, starts: &str, ends: &str, step: &str) -> Option<f64> {
        self.rates(table, starts, [ends], step).map(|[rate]| rate)
    }

    /// The same of rows that are compared: their names differ in nothing but their ends.
    pub(crate) fn rates<const N: usize>(
        &self,
        table: &str,
        starts: &str,
        ends: [&str; N],
        step: &str,
    ) -> Option<[f64; N]> {
        self.side_by_side(table, starts, ends, (step, Measure::OperationsPerSecond))
    }

    /// The same, with the time until all was compacted.
    pub(crate) fn settled<const N: usize>(
        &self,
        table: &str,
        starts: &str,
        ends: [&str; N],
        step: &str,
    ) -> Option<[f64; N]> {
        self.side_by_side(table, starts, ends, (step, Measure::SettledPerSecond))
    }

    fn side_by_side<const N: usize>(
        &self,
        table: &str,
        starts: &str,
        ends: [&str; N],
        (step, measure): (&str, Measure),
    ) -> Option<[f64; N]> {
        let rows = self.chapter(table)?.table.rows.iter().rev();
        let named = rows.filter(|row| row.id.starts_with(starts));
        let mut stems = named.filter_map(|row| row.id.strip_suffix(ends.first()?));
        stems.find_map(|stem| {
            let mut medians = [0.0; N];
            for (median, end) in medians.iter_mut().zip(ends) {
                *median = self.spread(table, &format!("{stem}{end}"), step, measure)?.median;
            }
            Some(medians)
        })
    }

    /// The first and the last eighth of the course of a step, in operations per second.
    pub(crate) fn ends(&self, table: &str, row: &str, step: &str) -> Option<(f64, f64)> {
        let measured = self.chapter(table)?.summary.middle(row, step)?;
        let marks = &measured.marks;
        let eighth = marks.len() / 8;
        if eighth == 0 {
            return None;
        }
        let part = measured.operations as f64 * eighth as f64 / marks.len() as f64;
        let last = marks[marks.len() - 1] - marks[marks.len() - 1 - eighth];
        Some((part / marks[eighth - 1], part / last))
    }

    /// All figures of a step, by row.
    pub(crate) fn all(&self, table: &str, step: &str, measure: Measure) -> Vec<(&str, f64)> {
        let Some(chapter) = self.chapter(table) else { return Vec::new() };
        let rate = |id| self.spread(table, id, step, measure);
        let rows = chapter.table.rows.iter();
        rows.filter_map(|row| Some((row.id.as_str(), rate(&row.id)?.median))).collect()
    }
}

#[cfg(test)]
pub(crate) mod made {
    use super::*;
    use crate::run::outcome::{Measured, Outcome};
    use crate::run::results::{End, Record};

    /// A row of a table at the quick scale, one of its steps, and what was measured of it.
    pub(crate) struct Made {
        pub(crate) table: &'static str,
        pub(crate) row: String,
        pub(crate) step: Measured,
    }

    /// A step that did so many operations a second.
    pub(crate) fn step(name: &str, operations_per_second: f64) -> Measured {
        Measured {
            name: name.to_owned(),
            operations: 1_000_000,
            seconds: 1e6 / operations_per_second,
            user_bytes: 116_000_000,
            ..Measured::default()
        }
    }

    /// The book of these results.
    pub(crate) fn book(all: &[Made]) -> Book {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::create(dir.path()).unwrap();
        for Made { table, row: id, step } in all {
            let known = tables::table(table, Scale::Quick).unwrap();
            let row = known.rows.iter().find(|row| row.id == *id);
            let row = row.unwrap_or_else(|| panic!("{table} has no row {id}"));
            assert!(row.steps().contains(&step.name.as_str()), "{id} has no step {}", step.name);
            let outcome = Outcome { steps: vec![step.clone()], close_seconds: 0.0 };
            let (job, end) = (row.job.clone(), End::Measured(outcome));
            let record = Record { row: id.clone(), scale: Scale::Quick, job, seconds: 1.0, end };
            results.add(table, &record).unwrap();
        }
        Book::of(&results).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::made::{Made, book, step};
    use crate::run::outcome::Measured;

    fn made(table: &'static str, row: &str, rate: f64) -> Made {
        Made { table, row: row.to_owned(), step: step("put", rate) }
    }

    #[test]
    fn rows_are_compared_with_those_of_the_same_size() {
        let known = [
            made("locks", "size-50k/rocksdb", 8.0),
            made("locks", "size-50k/range", 16.0),
            made("locks", "size-100k/rocksdb", 32.0),
            made("locks", "size-100k/range", 64.0),
            made("locks", "size-200k/rocksdb", 128.0),
        ];
        let book = book(&known);
        let ends = ["/rocksdb", "/range"];
        assert_eq!(book.rates("locks", "size-", ends, "put"), Some([32.0, 64.0]));
        assert_eq!(book.rate("locks", "size-", "/rocksdb", "put"), Some(128.0));
        assert_eq!(book.rate("locks", "size-", "/range-level", "put"), None);
        assert_eq!(book.rate("locks", "size-", "/range", "get"), None);
        assert_eq!(book.rate("peers", "", "rocksdb", "put"), None, "the table was not run");
    }

    #[test]
    fn the_first_and_the_last_eighth_of_a_course() {
        let marks = (1..=16).map(|i| if i <= 8 { f64::from(i) } else { f64::from(4 * i - 24) });
        let course = Measured { marks: marks.collect(), ..step("put", 1000.0) };
        let row = "course-ascending".to_owned();
        let book = book(&[Made { table: "lsm-kv", row, step: course }]);
        assert_eq!(
            book.ends("lsm-kv", "course-ascending", "put"),
            Some((125_000.0 / 2.0, 125_000.0 / 8.0))
        );
    }
}
