//! The database under test while it is open.

use std::path::Path;
use std::time::Instant;

use turbidite::{Database, DatabaseBuilder, Keyspace, KeyspaceOptions};

use super::Plan;
use super::counters::Counters;
use crate::failure::Result;

/// An open database and its keyspace, and how to open them again.
pub(crate) struct Store {
    builder: DatabaseBuilder,
    options: KeyspaceOptions,
    pub(crate) database: Database,
    pub(super) keyspace: Keyspace,
}

/// How long it took to close the database, and to open it again and let it settle; 0 if that was not done.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reopening {
    pub(super) close_seconds: f64,
    pub(super) open_seconds: f64,
    /// What the file layer did while it was closed: what was still in memory is written then.
    pub(super) closing: Counters,
}

impl Store {
    /// Makes the database at `path`.
    pub(crate) fn create(path: &Path, plan: &Plan) -> Result<Self> {
        Self::open(plan.builder(path)?, plan.keyspace_options()?)
    }

    fn open(builder: DatabaseBuilder, options: KeyspaceOptions) -> Result<Self> {
        let database = builder.clone().open()?;
        let keyspace = database.keyspace("bench", options.clone())?;
        Ok(Self { builder, options, database, keyspace })
    }

    /// Closes the database and opens it as it was. Nothing of it stays in the memory of the process; the
    /// system's page cache is left alone.
    pub(crate) fn reopen(self) -> Result<(Self, Reopening)> {
        let Self { builder, options, database, keyspace } = self;
        drop(keyspace);
        let before = Counters::of(&database.stats());
        let closed = database.clone();
        let start = Instant::now();
        database.close()?;
        let closing = Counters::of(&closed.stats()).since(before);
        drop(closed);
        let close_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let store = Self::open(builder, options)?;
        store.database.settle()?;
        let open_seconds = start.elapsed().as_secs_f64();
        Ok((store, Reopening { close_seconds, open_seconds, closing }))
    }

    /// Closes the database.
    pub(crate) fn close(self) -> Result<()> {
        Ok(self.database.close()?)
    }
}
