//! Writes one value file, front to back: the header, then records. Nobody is told of the file before it is synced.
//!
//! Thread safety: one writer.

use std::io::IoSlice;
use std::sync::Arc;

use super::file::ValueFile;
use super::record;
use super::reference::Reference;
use crate::base::hash;
use crate::error::{Error, Result};
use crate::lsm::version::Home;
use crate::throttle::Valve;
use crate::vfs::Appender;

/// The bytes gathered before they are written to the file.
const WRITE_BUFFER: usize = 1 << 20;

/// A value file that is being written.
#[derive(Debug)]
pub(super) struct ValueWriter {
    id: u64,
    identity: u64,
    out: Appender,
}

impl ValueWriter {
    /// Begins the file with this number, which must be new. Its writes wait for `valve`.
    pub(super) fn create(home: &Home, id: u64, valve: Option<&Arc<Valve>>) -> Result<Self> {
        let file = home.fs.create(&home.values_path(id), home.layer().for_writing())?;
        let file = Valve::over_if(valve, file);
        let mut out = Appender::new(file, WRITE_BUFFER);
        let owner = home.values_owner(id);
        out.append(&record::header(owner))?;
        Ok(Self { id, identity: owner.file, out })
    }

    /// Appends a value and says where it is. A file with an error is of no use.
    pub(super) fn append(&mut self, key: &[u8], value: &[u8]) -> Result<Reference> {
        let len = u32::try_from(value.len())
            .map_err(|_| Error::Invalid("a value is larger than 4 GiB".into()))?;
        let reference = Reference { file: self.id, offset: self.out.position(), len };
        let front = record::front(self.identity, reference.offset, hash::hash64(key), value);
        self.out.append_parts(&[IoSlice::new(&front), IoSlice::new(value)])?;
        Ok(reference)
    }

    /// The file's length if it were finished now.
    pub(super) fn len(&self) -> u64 {
        self.out.position()
    }

    /// Syncs the file.
    pub(super) fn finish(self, home: &Arc<Home>) -> Result<Arc<ValueFile>> {
        let len = self.len();
        self.out.finish()?;
        Ok(ValueFile::new(self.id, len, Arc::clone(home)))
    }
}
