//! Loading records in order, straight into tables: a run that comes without memtable and log.
//!
//! Until it is installed, the tables are nobody's, and go with the load. Their entries have the number 0, which no write
//! has: they count as written with the number that the load is given when it is committed, which the manifest says of them.
//! The log has of a load
//!
//! ```text
//! count of tables varint, then of each, in the order of keys: id varint, length of the file varint
//! ```

use std::sync::Arc;

use super::table::{Kept, Table, TableBuilder, TableLimits, TableOptions, TableSummary};
use super::tree::Tree;
use super::version::{Home, LEVELS, Place, Run, TableFile, TableMeta};
use crate::base::{Kind, Seqno, Trailer, varint};
use crate::cache::Handle;
use crate::contract::Load;
use crate::error::{Error, Result};
use crate::options::KeyFile;
use crate::vfs::{Access, remove_obsolete};

/// A load that readers see and the manifest does not name yet.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) seqno: Seqno,
    pub(super) run: Run,
}

impl Loaded {
    /// The tables of a load, in the order of keys, as the write `seqno`; `None` if they cannot be.
    fn new(seqno: Seqno, tables: Vec<(u64, TableSummary)>, home: &Arc<Home>) -> Option<Self> {
        let file = |(id, summary): (u64, TableSummary)| {
            let is_loaded = summary.properties.entries > 0 && summary.properties.largest_seqno == 0;
            let meta = TableMeta::new(id, summary);
            let meta = TableMeta { smallest_seqno: seqno, largest_seqno: seqno, ..meta };
            is_loaded.then(|| TableFile::with_values(meta, Vec::new(), Arc::clone(home)))
        };
        let tables = tables.into_iter().map(file).collect::<Option<_>>()?;
        Some(Self { seqno, run: Run::new(Place::merged(0), tables)? })
    }

    /// Opens the tables that the log tells of.
    ///
    /// # Errors
    /// `Corruption` if they are not there, or not those of a load.
    pub(super) fn open(
        seqno: Seqno,
        described: &[u8],
        home: &Arc<Home>,
        mut is_there: impl FnMut(u64) -> bool,
    ) -> Result<Self> {
        let wrong = |what| Error::corruption(&home.dir, 0, what);
        let described = decode(described)
            .ok_or_else(|| wrong("what the log says of a sorted load cannot be"))?;
        let mut tables = Vec::new();
        for (id, len) in described {
            let path = home.path(id);
            if !is_there(id) {
                let what = "a table of a sorted load that the log has is missing";
                return Err(Error::corruption(&path, 0, what));
            }
            let file = home.fs.open(&path, Access::Read, home.layer())?;
            let kept = Kept { key_file: KeyFile::None, points: 0 };
            let file = Handle::staying(file);
            let table = Table::open(file, home.identity_of(id), len, None, kept)?;
            tables.push((id, TableSummary { len, properties: table.properties().clone() }));
        }
        Self::new(seqno, tables, home)
            .ok_or_else(|| wrong("the tables of a sorted load that the log has are not of one"))
    }
}

pub(super) fn encode(tables: &[(u64, TableSummary)]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, tables.len() as u64);
    for (id, summary) in tables {
        varint::put(&mut out, *id);
        varint::put(&mut out, summary.len);
    }
    out
}

/// Ids and lengths; `None` if that cannot be.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let bytes = &mut bytes;
    let count = varint::take(bytes)?;
    let tables: Option<Vec<_>> =
        (0..count).map(|_| Some((varint::take(bytes)?, varint::take(bytes)?))).collect();
    tables.filter(|tables| !tables.is_empty() && bytes.is_empty())
}

/// A load on its way.
pub(super) struct SortedLoad {
    tree: Arc<Tree>,
    options: TableOptions,
    limits: TableLimits,
    /// The tables that were begun.
    ids: Vec<u64>,
    /// Those that are whole.
    written: Vec<(u64, TableSummary)>,
    last_key: Vec<u8>,
    records: u64,
    stage: Stage,
}

enum Stage {
    /// With the table that is being written.
    Writing(Option<Box<TableBuilder>>),
    Written,
    Installed(Seqno),
    GivenUp,
}

impl SortedLoad {
    pub(super) fn new(tree: Arc<Tree>) -> Result<Self> {
        tree.jobs().stop_if_told()?;
        tree.wait_for_compactions()?;
        Ok(Self {
            options: tree.table_options(LEVELS - 1),
            limits: tree.table_limits(),
            tree,
            ids: Vec::new(),
            written: Vec::new(),
            last_key: Vec::new(),
            records: 0,
            stage: Stage::Writing(None),
        })
    }

    /// A new table.
    fn begin(&mut self) -> Result<Box<TableBuilder>> {
        let home = self.tree.home();
        let id = self.tree.take_id();
        let file = home.create(id)?;
        self.ids.push(id);
        Ok(Box::new(TableBuilder::new(file, home.identity_of(id), &self.options)?))
    }

    /// Completes the table that was begun last.
    fn end(&mut self, table: TableBuilder) -> Result<()> {
        let id = *self.ids.last().expect("it was begun");
        self.written.push((id, table.finish()?));
        Ok(())
    }
}

impl Load for SortedLoad {
    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.tree.jobs().stop_if_told()?;
        let Stage::Writing(table) = std::mem::replace(&mut self.stage, Stage::GivenUp) else {
            return Err(given_up());
        };
        if self.records > 0 && key <= &self.last_key[..] {
            let number = self.records + 1;
            return Err(Error::Invalid(format!(
                "record {number} of a sorted load is out of order: each key must be above the one before it"
            )));
        }
        let mut table = match table {
            Some(table) if table.is_full(self.limits) => {
                self.end(*table)?;
                self.begin()?
            }
            Some(table) => table,
            None => self.begin()?,
        };
        table.add(key, Trailer::new(0, Kind::Put), value)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.records += 1;
        self.stage = Stage::Writing(Some(table));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.tree.jobs().stop_if_told()?;
        let Stage::Writing(Some(table)) = std::mem::replace(&mut self.stage, Stage::GivenUp) else {
            return Err(given_up());
        };
        self.end(*table)?;
        let home = self.tree.home();
        home.fs.sync_dir(&home.dir)?;
        self.stage = Stage::Written;
        Ok(())
    }

    fn describe(&self) -> Vec<u8> {
        encode(&self.written)
    }

    fn install(&mut self, before: Seqno, seqno: Seqno) {
        assert!(matches!(self.stage, Stage::Written), "it is installed once, when it is finished");
        self.stage = Stage::Installed(seqno);
        let written = std::mem::take(&mut self.written);
        let loaded = Loaded::new(seqno, written, self.tree.home());
        self.tree.put_in_front(before, loaded.expect("the keys ascend"));
    }

    fn wait(&mut self) -> Result<()> {
        match self.stage {
            Stage::Installed(seqno) => self.tree.wait_persisted(seqno),
            _ => Err(given_up()),
        }
    }
}

impl Drop for SortedLoad {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Installed(_)) || self.tree.jobs().is_stopping() {
            return;
        }
        let home = self.tree.home();
        self.ids.iter().for_each(|&id| remove_obsolete(&*home.fs, &home.path(id)));
    }
}

fn given_up() -> Error {
    Error::Invalid("this load was given up after an error; begin it anew".into())
}

#[cfg(test)]
mod tests {
    use super::super::version::sample;
    use super::*;

    fn summary(len: u64) -> TableSummary {
        TableSummary { len, properties: Default::default() }
    }

    #[test]
    fn what_the_log_has_round_trips_and_cuts_are_refused() {
        let mut bytes = encode(&[(300, summary(1 << 40)), (7, summary(9))]);
        (0..bytes.len()).for_each(|cut| assert_eq!(decode(&bytes[..cut]), None));
        assert_eq!(decode(&bytes), Some(vec![(300, 1 << 40), (7, 9)]));
        bytes.push(0);
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&[0]), None, "no load is empty");
        assert_eq!(decode(&[255, 255, 255, 255, 15, 1, 1]), None, "more tables than bytes");
    }

    #[test]
    fn tables_of_a_load_follow_one_another_and_have_no_numbers() {
        let home = sample::home();
        let table = |id: u64, smallest: &str, largest: &str, seqno: Seqno| {
            let mut summary = summary(10);
            summary.properties.entries = 2;
            summary.properties.smallest = smallest.into();
            summary.properties.largest = largest.into();
            (summary.properties.smallest_seqno, summary.properties.largest_seqno) = (seqno, seqno);
            (id, summary)
        };
        let load = |tables: &[(u64, TableSummary)]| Loaded::new(9, tables.to_vec(), &home);
        let loaded = load(&[table(4, "a", "c", 0), table(2, "d", "f", 0)]).unwrap();
        assert!(loaded.run.tables().iter().all(|table| table.meta.smallest_seqno == 9));
        assert!(load(&[table(4, "a", "c", 0), table(2, "c", "f", 0)]).is_none(), "they overlap");
        assert!(load(&[table(4, "a", "c", 1)]).is_none(), "it is a table of writes");
        assert!(load(&[(4, summary(10))]).is_none() && load(&[]).is_none(), "nothing is loaded");
    }
}
