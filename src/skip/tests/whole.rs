//! A file in memory that lends its bytes or not, as it is told.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::View;
use crate::error::{Error, Result};
use crate::vfs::{File, Hint, IoStats};

#[derive(Debug)]
pub(super) struct Whole {
    bytes: Mutex<Vec<u8>>,
    lent: Option<View>,
    /// The most bytes that were read at once.
    most: AtomicU64,
}

impl Whole {
    /// A file of these bytes. One that lends them is not to be written.
    pub(super) fn new(bytes: Vec<u8>, lends: bool) -> Arc<Self> {
        let lent = lends.then(|| View::from(bytes.clone()));
        Arc::new(Self { bytes: Mutex::new(bytes), lent, most: AtomicU64::new(0) })
    }

    /// The most bytes that were read at once since it was last asked.
    pub(super) fn take_most(&self) -> u64 {
        self.most.swap(0, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File for Whole {
    fn path(&self) -> &Path {
        Path::new("whole.sorted")
    }

    fn len(&self) -> Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.lock().resize(len as usize, 0);
        Ok(())
    }

    fn allocate(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.copy_from_slice(&self.view(offset..offset + buffer.len() as u64)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut all = self.lock();
        assert_eq!(all.len() as u64, offset, "it is written from front to back");
        all.extend_from_slice(bytes);
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.write_at(offset, &parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn advise(&self, _: Range<u64>, _: Hint) {}

    fn lends(&self) -> bool {
        self.lent.is_some()
    }

    fn view(&self, range: Range<u64>) -> Result<View> {
        let places = range.start as usize..range.end as usize;
        self.most.fetch_max(range.end - range.start, Ordering::Relaxed);
        let all = self.lock();
        let Some(bytes) = all.get(places.clone()) else {
            let source = io::ErrorKind::UnexpectedEof.into();
            return Err(Error::io("read", self.path(), Some(range.start), source));
        };
        Ok(match &self.lent {
            Some(lent) => lent.slice(places),
            None => View::from(bytes.to_vec()),
        })
    }

    fn stats(&self) -> IoStats {
        IoStats::default()
    }
}
