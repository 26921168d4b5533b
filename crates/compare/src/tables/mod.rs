//! The tables: which rows they have, what their rows do, and which figures are drawn from them.

mod durability;
mod figure;
mod files;
mod locks;
mod lsm_kv;
mod peers;
mod raw;
mod row;
mod scale;
mod write_path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

pub(crate) use figure::{Figure, Kind, Measure, Point, X};
pub(crate) use row::Row;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scale {
    /// Whether everything runs, in seconds; the figures mean nothing
    Smoke,
    /// A first impression, in minutes for each table
    Quick,
    /// The sizes of the studies, or as near to them as hours allow
    Full,
}

impl Scale {
    /// As it is called on the command line.
    pub(crate) fn name(self) -> &'static str {
        self.pick("smoke", "quick", "full")
    }

    /// One of three.
    fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// How often each row is run.
    fn rounds(self) -> u32 {
        self.pick(1, 3, 3)
    }
}

/// A table with its figures.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What is measured, and what to know for reading it.
    pub(crate) about: &'static str,
    /// How large a full run is beside its study.
    pub(crate) sizes: &'static str,
    /// Rows of one workload follow one another.
    pub(crate) rows: Vec<Row>,
    pub(crate) figures: Vec<Figure>,
}

/// The names of all tables, in the order of the report.
pub(crate) const NAMES: [&str; 8] =
    ["write-path", "raw", "durability", "files", "locks", "lsm-kv", "peers", "scale"];

/// The table of this name.
pub(crate) fn table(name: &str, scale: Scale) -> Result<Table> {
    Ok(match name {
        "write-path" => write_path::table(scale),
        "raw" => raw::table(scale),
        "durability" => durability::table(scale),
        "files" => files::table(scale),
        "locks" => locks::table(scale),
        "lsm-kv" => lsm_kv::table(scale),
        "peers" => peers::table(scale),
        "scale" => scale::table(scale),
        other => {
            let names = NAMES.join(", ");
            return Err(Failure::usage(format!(
                "there is no table {other:?}: one of {names}, or all"
            )));
        }
    })
}

/// A number in words: `600k`.
fn short(count: u32) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{}k", f64::from(count) / 1e3),
        _ => format!("{}M", f64::from(count) / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::run::job::Job;
    use crate::systems;

    #[test]
    fn tables_are_consistent_at_every_scale() {
        for scale in [Scale::Smoke, Scale::Quick, Scale::Full] {
            for name in NAMES {
                let table = table(name, scale).unwrap();
                assert_eq!(table.name, name);
                let ids: BTreeSet<_> = table.rows.iter().map(|row| &row.id).collect();
                assert_eq!(ids.len(), table.rows.len(), "{name}: ids are unique");
                let groups = table.rows.chunk_by(|a, b| a.workload == b.workload).count();
                let workloads: BTreeSet<_> = table.rows.iter().map(|row| &row.workload).collect();
                assert_eq!(
                    groups,
                    workloads.len(),
                    "{name}: rows of a workload follow one another"
                );
                for row in &table.rows {
                    systems::kind(row.job.system()).unwrap();
                    for seed in &row.seeds {
                        assert!(row.steps().contains(&seed.step.as_str()), "{}", row.id);
                    }
                }
                assert!(!table.figures.is_empty(), "{name}");
                for figure in &table.figures {
                    assert!(!figure.points.is_empty(), "{name}: {}", figure.title);
                    for point in &figure.points {
                        let row = table.rows.iter().find(|row| row.id == point.row);
                        let row = row.unwrap_or_else(|| panic!("{name}: {}", point.row));
                        assert!(
                            row.steps().contains(&point.step.as_str()),
                            "{}: {}",
                            row.id,
                            point.step
                        );
                    }
                }
            }
        }
        assert!(table("nothing", Scale::Smoke).is_err());
    }

    #[test]
    fn systems_take_what_rows_set_them_up_with() {
        let mut known = BTreeSet::new();
        for (scale, name) in [Scale::Smoke, Scale::Quick, Scale::Full]
            .into_iter()
            .flat_map(|scale| NAMES.map(|name| (scale, name)))
        {
            for row in table(name, scale).unwrap().rows {
                let Job::Store { setup, .. } = row.job else { continue };
                let is_missing = systems::kind(&setup.system).unwrap().missing().is_some();
                if is_missing || !known.insert(serde_json::to_string(&setup).unwrap()) {
                    continue;
                }
                let dir = tempfile::tempdir().unwrap();
                let opened = systems::open(&setup, dir.path()).and_then(systems::System::close);
                opened.unwrap_or_else(|failure| panic!("{name}: {}: {failure}", row.id));
            }
        }
    }

    #[test]
    fn numbers_in_words() {
        let words = [7, 2_000, 2_500, 600_000, 3_000_000].map(short);
        assert_eq!(words, ["7", "2k", "2.5k", "600k", "3M"]);
    }
}
