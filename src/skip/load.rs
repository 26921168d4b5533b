//! Loading records in order, straight into a file: a run that comes without memtable and log.
//!
//! Until it is installed, the file is nobody's, and goes with the load. Records have no trailers: they count as written
//! with the number that the load is given when it is committed. The log has of it
//!
//! ```text
//! id of the file varint, its length varint, records varint
//! ```

use std::sync::Arc;

use super::file::SortedFile;
use super::merge::at_once;
use super::part::{Name, Part, PartMeta};
use super::store::Store;
use super::writer::{Shape, Writer};
use crate::base::{Kind, Seqno, Trailer, varint};
use crate::contract::{Engine, Load};
use crate::error::{Error, Result};
use crate::vfs::{Layer, remove_obsolete};

/// A file that was loaded, as the log tells of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loaded {
    pub(super) id: u64,
    len: u64,
    records: u64,
}

impl Loaded {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        [self.id, self.len, self.records].into_iter().for_each(|n| varint::put(&mut out, n));
        out
    }

    /// What was encoded; `None` if it cannot be.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let (id, len) = (varint::take(bytes)?, varint::take(bytes)?);
        let loaded = Self { id, len, records: varint::take(bytes)? };
        bytes.is_empty().then_some(loaded)
    }

    /// What the manifest is to say of it as the write `seqno`.
    pub(super) fn meta(self, seqno: Seqno) -> PartMeta {
        let Self { id, len, records } = self;
        PartMeta { id, len, records, is_base: false, after: seqno - 1, to: seqno }
    }
}

/// A load on its way.
pub(super) struct SortedLoad {
    store: Arc<Store>,
    id: u64,
    layer: Layer,
    stage: Stage,
}

enum Stage {
    Writing(Box<Writer>),
    Written(Box<SortedFile>, Arc<Name>),
    Installed(Seqno),
    GivenUp,
}

impl SortedLoad {
    pub(super) fn new(store: &Arc<Store>) -> Result<Self> {
        store.jobs().stop_if_told()?;
        store.wait_for_merges()?;
        let home = store.home();
        let id = store.take_id();
        let shape = Shape { has_trailers: false, ..store.shape() };
        let layer = home.layer();
        let file = home.create(id, layer)?;
        let buffer = at_once(home.budget.total, 0);
        let writer = Box::new(Writer::new(file, home.identity_of(id), shape, buffer));
        Ok(Self { store: Arc::clone(store), id, layer, stage: Stage::Writing(writer) })
    }

    /// What was written, once it is finished and until it is installed.
    fn loaded(&self) -> Loaded {
        let Stage::Written(sorted, _) = &self.stage else { unreachable!("the load is finished") };
        Loaded { id: self.id, len: sorted.len(), records: sorted.footer.records }
    }
}

impl Load for SortedLoad {
    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.jobs().stop_if_told()?;
        self.store.check_write(key, value)?;
        let Stage::Writing(writer) = &mut self.stage else { return Err(given_up()) };
        if writer.last_key().is_some_and(|last| key <= last) {
            let number = writer.records() + 1;
            return Err(Error::Invalid(format!(
                "record {number} of a sorted load is out of order: each key must be above the one before it"
            )));
        }
        writer.push(key, Trailer::new(0, Kind::Put), value)
    }

    fn finish(&mut self) -> Result<()> {
        self.store.jobs().stop_if_told()?;
        let Stage::Writing(writer) = std::mem::replace(&mut self.stage, Stage::GivenUp) else {
            return Err(given_up());
        };
        let home = self.store.home();
        // What was given up is removed all the same.
        let (file, len, _) = writer.finish()?;
        home.fs.sync_dir(&home.dir)?;
        let identity = home.identity_of(self.id);
        let name = Name::new(home, self.id);
        let file = name.handle(file, self.layer, len);
        let sorted = SortedFile::open(file, identity, len, 0, &home.blocks, home.room())?;
        self.stage = Stage::Written(Box::new(sorted), name);
        Ok(())
    }

    fn describe(&self) -> Vec<u8> {
        self.loaded().encode()
    }

    fn install(&mut self, before: Seqno, seqno: Seqno) {
        let meta = self.loaded().meta(seqno);
        let Stage::Written(mut sorted, name) =
            std::mem::replace(&mut self.stage, Stage::Installed(seqno))
        else {
            unreachable!("a load is installed once, when it is finished")
        };
        sorted.uniform = Trailer::new(seqno, Kind::Put);
        self.store.put_in_front(before, &Part::new(meta, *sorted, &name, self.layer));
    }

    fn wait(&mut self) -> Result<()> {
        match self.stage {
            Stage::Installed(seqno) => self.store.wait_persisted(seqno),
            _ => Err(given_up()),
        }
    }
}

impl Drop for SortedLoad {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Installed(_)) || self.store.jobs().is_stopping() {
            return;
        }
        let home = self.store.home();
        remove_obsolete(&*home.fs, &home.path(self.id));
    }
}

fn given_up() -> Error {
    Error::Invalid("this load was given up after an error; begin it anew".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_log_has_round_trips_and_cuts_are_refused() {
        let loaded = Loaded { id: 300, len: 1 << 40, records: 7 };
        let mut bytes = loaded.encode();
        (0..bytes.len()).for_each(|cut| assert_eq!(Loaded::decode(&bytes[..cut]), None));
        assert_eq!(Loaded::decode(&bytes), Some(loaded));
        bytes.push(0);
        assert_eq!(Loaded::decode(&bytes), None);
    }
}
