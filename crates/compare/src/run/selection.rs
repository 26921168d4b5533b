//! Which rows of tables are run.

use crate::failure::{Failure, Result};
use crate::systems;
use crate::tables::{Row, Table};

/// What rows have to be like.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    /// The starts of the names of their systems; empty for all.
    pub(crate) only: &'a [String],
    /// Parts of their names; empty for all.
    pub(crate) rows: &'a [String],
}

impl Selection<'_> {
    pub(crate) fn has(&self, row: &Row) -> bool {
        let system = row.job.system();
        let starts = |name: &String| system.starts_with(name.as_str());
        let is_in = |text: &String| row.id.contains(text.as_str());
        (self.only.is_empty() || self.only.iter().any(starts))
            && (self.rows.is_empty() || self.rows.iter().any(is_in))
    }

    /// Refuses what selects nothing of `tables`, or nothing that can be run here. `list` is what tells their rows.
    pub(crate) fn check(&self, tables: &[Table], list: &str) -> Result<()> {
        let kinds = systems::kinds();
        let is_system =
            |name: &String| kinds.iter().any(|kind| kind.name.starts_with(name.as_str()));
        if let Some(name) = self.only.iter().find(|name| !is_system(name)) {
            return Err(Failure::usage(format!("there is no system {name:?}: `list` has all")));
        }
        let rows = || tables.iter().flat_map(|table| &table.rows);
        let is_row = |text: &String| rows().any(|row| row.id.contains(text.as_str()));
        if let Some(text) = self.rows.iter().find(|text| !is_row(text)) {
            return Err(Failure::usage(format!(
                "there is no row with {text:?} in its name: {list} has all"
            )));
        }
        let mut selected = rows().filter(|row| self.has(row)).peekable();
        if selected.peek().is_none() {
            return Err(Failure::usage(format!("no row is {self}: {list} has all")));
        }
        let mut reasons = Vec::new();
        for row in selected {
            let Some(why) = systems::kind(row.job.system())?.missing() else { return Ok(()) };
            let reason = format!("{} is {why}", row.job.system());
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        Err(Failure::usage(format!("nothing of it can be run here: {}", reasons.join("; "))))
    }
}

impl std::fmt::Display for Selection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.only, self.rows) {
            (only, []) => write!(f, "of a system {}", only.join(" or ")),
            ([], rows) => write!(f, "called {}", rows.join(" or ")),
            (only, rows) => {
                write!(f, "of a system {} and called {}", only.join(" or "), rows.join(" or "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{self, Scale};

    /// What is said of a selection of rows of a table.
    fn refused(table: &str, only: &[&str], rows: &[&str]) -> Option<String> {
        let texts = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let (only, rows) = (texts(only), texts(rows));
        let selection = Selection { only: &only, rows: &rows };
        let tables = [tables::table(table, Scale::Quick).unwrap()];
        selection.check(&tables, "`list`").err().map(|failure| failure.to_string())
    }

    #[test]
    fn what_selects_nothing_is_refused() {
        assert_eq!(refused("raw", &[], &[]), None);
        assert_eq!(refused("raw", &["vec"], &["/vec"]), None);
        let none = refused("files", &["rocksdb"], &[]).unwrap();
        assert_eq!(none, "no row is of a system rocksdb: `list` has all");
        let none = refused("raw", &["vec"], &["skipmap"]).unwrap();
        assert_eq!(none, "no row is of a system vec and called skipmap: `list` has all");
        assert!(refused("raw", &["nothing"], &[]).unwrap().starts_with("there is no system"));
        assert!(refused("raw", &[], &["nothing"]).unwrap().starts_with("there is no row"));
    }

    #[test]
    fn what_cannot_be_run_here_is_refused() {
        assert_eq!(refused("peers", &["rocksdb", "turbidite"], &[]), None);
        for kind in systems::kinds() {
            let table = if kind.name == "tkrzw" { "files" } else { "peers" };
            let Some(why) = kind.missing() else { continue };
            let said = refused(table, &[kind.name], &[]).unwrap();
            assert!(said.contains(&format!("{} is {why}", kind.name)), "{said}");
        }
    }
}
