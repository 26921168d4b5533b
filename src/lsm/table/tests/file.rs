//! A file in memory that lends its bytes or not, as it is told, and counts its reads.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::View;
use crate::error::{Error, Result};
use crate::vfs::{File, Hint, IoStats};

#[derive(Debug)]
pub(super) struct TestFile {
    bytes: Mutex<Vec<u8>>,
    lent: Option<View>,
    views: AtomicU64,
}

impl TestFile {
    /// An empty file to be written.
    pub(super) fn empty() -> Arc<Self> {
        Self::new(Vec::new(), false)
    }

    pub(super) fn new(bytes: Vec<u8>, lends: bool) -> Arc<Self> {
        let lent = lends.then(|| View::from(bytes.clone()));
        Arc::new(Self { bytes: Mutex::new(bytes), lent, views: AtomicU64::new(0) })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.lock().clone()
    }

    /// Flips a bit of the byte at `offset`.
    pub(super) fn flip(&self, offset: u64) {
        self.lock()[offset as usize] ^= 1;
    }

    /// How often bytes were read.
    pub(super) fn views(&self) -> u64 {
        self.views.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends_early(&self, offset: u64) -> Error {
        Error::io("read", self.path(), Some(offset), io::ErrorKind::UnexpectedEof.into())
    }
}

impl File for TestFile {
    fn path(&self) -> &Path {
        Path::new("table")
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
        let view = self.view(offset..offset + buffer.len() as u64)?;
        buffer.copy_from_slice(&view);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut all = self.lock();
        let end = offset as usize + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.write_at(offset, &parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn advise(&self, _: Range<u64>, _: Hint) {}

    fn view(&self, range: Range<u64>) -> Result<View> {
        self.views.fetch_add(1, Ordering::Relaxed);
        let places = range.start as usize..range.end as usize;
        if let Some(lent) = &self.lent {
            return match lent.get(places.clone()) {
                Some(_) => Ok(lent.slice(places)),
                None => Err(self.ends_early(range.start)),
            };
        }
        let bytes = self.lock().get(places).map(<[u8]>::to_vec);
        bytes.map(View::from).ok_or_else(|| self.ends_early(range.start))
    }

    fn lends(&self) -> bool {
        self.lent.is_some()
    }

    fn stats(&self) -> IoStats {
        IoStats::default()
    }
}
