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

    /// The last row of `table`, which is the largest, whose name begins and ends like this and that has figures.
    pub(crate) fn row(&self, table: &str, starts: &str, ends: &str, step: &str) -> Option<&str> {
        let chapter = self.chapter(table)?;
        let rows = chapter.table.rows.iter().rev();
        let mut named = rows.filter(|row| row.id.starts_with(starts) && row.id.ends_with(ends));
        let has = |id: &str| self.spread(table, id, step, Measure::OperationsPerSecond).is_some();
        named.find(|row| has(&row.id)).map(|row| row.id.as_str())
    }

    fn spread(&self, table: &str, row: &str, step: &str, measure: Measure) -> Option<Spread> {
        self.chapter(table)?.summary.spread(row, step, measure)
    }

    /// Operations per second of such a row.
    pub(crate) fn rate(&self, table: &str, starts: &str, ends: &str, step: &str) -> Option<f64> {
        let row = self.row(table, starts, ends, step)?;
        self.spread(table, row, step, Measure::OperationsPerSecond).map(|spread| spread.median)
    }

    /// The same, with the time until all was compacted.
    pub(crate) fn settled(&self, table: &str, starts: &str, ends: &str, step: &str) -> Option<f64> {
        let row = self.row(table, starts, ends, step)?;
        self.spread(table, row, step, Measure::SettledPerSecond).map(|spread| spread.median)
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
