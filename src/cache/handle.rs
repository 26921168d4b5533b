//! The file of something that stays in memory: closed when nobody has needed it lately, and opened again by the next one who
//! does.
//!
//! Thread safety: any thread may use and close it; it is opened at most once at a time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwapOption;

use super::open_files::{OpenFiles, Place};
use crate::error::Result;
use crate::sync::Mutex;
use crate::vfs::File;

/// Opens a file again.
type Again = Box<dyn Fn() -> Result<Arc<dyn File>> + Send + Sync>;

/// A file that is open or can be opened.
pub(crate) struct Handle {
    path: PathBuf,
    open: ArcSwapOption<Open>,
    used: AtomicBool,
    opening: Mutex<()>,
    /// `None` for one that stays open.
    again: Option<(Arc<OpenFiles>, Again)>,
}

struct Open {
    file: Arc<dyn File>,
    _place: Option<Place>,
}

impl Handle {
    /// A file that stays open and is not counted.
    pub(crate) fn staying(file: Arc<dyn File>) -> Self {
        Self::new(file, None, None)
    }

    /// One of the open files, which `again` opens.
    pub(crate) fn closing(
        file: Arc<dyn File>,
        open_files: &Arc<OpenFiles>,
        again: impl Fn() -> Result<Arc<dyn File>> + Send + Sync + 'static,
    ) -> Self {
        let place = open_files.place();
        Self::new(file, Some(place), Some((Arc::clone(open_files), Box::new(again))))
    }

    fn new(
        file: Arc<dyn File>,
        place: Option<Place>,
        again: Option<(Arc<OpenFiles>, Again)>,
    ) -> Self {
        let path = file.path().to_path_buf();
        let open = ArcSwapOption::from_pointee(Open { file, _place: place });
        Self { path, open, used: AtomicBool::new(true), opening: Mutex::new(()), again }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the open file to `call`, opening it if need be.
    #[inline]
    pub(crate) fn with<R>(&self, call: impl FnOnce(&Arc<dyn File>) -> Result<R>) -> Result<R> {
        if let Some(open) = &*self.open.load() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return call(&open.file);
        }
        call(&self.open_again()?.file)
    }

    /// The open file. It is not closed before this is dropped.
    pub(crate) fn file(&self) -> Result<Arc<dyn File>> {
        self.with(|file| Ok(Arc::clone(file)))
    }

    /// Closes the file, unless it was used since this was last called, or stays open.
    pub(crate) fn rest(&self) {
        if self.again.is_some() && !self.used.swap(false, Ordering::Relaxed) {
            self.open.store(None);
        }
    }

    #[cold]
    fn open_again(&self) -> Result<Arc<Open>> {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = self.open.load_full() {
            return Ok(open);
        }
        let (open_files, again) = self.again.as_ref().expect("what stays open is open");
        let open = Arc::new(Open { file: again()?, _place: Some(open_files.place()) });
        self.used.store(true, Ordering::Relaxed);
        self.open.store(Some(Arc::clone(&open)));
        // Others that are opened meanwhile may have this one closed.
        drop(opening);
        open_files.make_room();
        Ok(open)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.open.load().is_some();
        f.debug_struct("Handle").field("path", &self.path).field("is_open", &is_open).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::budget::Budget;
    use crate::cache::BlockCache;
    use crate::vfs::{Access, Fs, Layer, MemoryFs};

    fn open_files() -> Arc<OpenFiles> {
        let (budget, blocks) = (Arc::new(Budget::new(1 << 20)), Arc::new(BlockCache::new(0)));
        Arc::new(OpenFiles::new(budget, blocks))
    }

    #[test]
    fn what_rests_is_opened_again_by_who_needs_it() {
        let fs = MemoryFs::new();
        let path = Path::new("/file");
        fs.create(path, Layer::Positional).unwrap().write_at(0, b"bytes").unwrap();
        let open = move || fs.open(Path::new("/file"), Access::Read, Layer::Positional);
        let (files, opened) = (open_files(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&opened);
        let first = open().unwrap();
        let handle = Handle::closing(first, &files, move || {
            count.fetch_add(1, Ordering::Relaxed);
            open()
        });
        let read = |handle: &Handle| handle.with(|file| Ok(file.view(0..5)?.to_vec())).unwrap();
        assert_eq!((read(&handle), files.places()), (b"bytes".to_vec(), 1));
        handle.rest();
        assert_eq!(files.places(), 1, "it was used");
        handle.rest();
        assert_eq!((files.places(), opened.load(Ordering::Relaxed)), (0, 0));
        assert_eq!((read(&handle), files.places()), (b"bytes".to_vec(), 1));
        assert_eq!((read(&handle), opened.load(Ordering::Relaxed)), (b"bytes".to_vec(), 1));
        assert_eq!(handle.path(), path);
        drop(handle);
        assert_eq!(files.places(), 0);
    }

    #[test]
    fn what_stays_open_never_rests() {
        let fs = MemoryFs::new();
        let file = fs.create(Path::new("/file"), Layer::Positional).unwrap();
        let handle = Handle::staying(file);
        handle.rest();
        handle.rest();
        assert!(handle.with(|file| file.len()).is_ok_and(|len| len == 0));
    }
}
