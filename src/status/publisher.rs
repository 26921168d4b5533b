//! The side of the process that has the database open: a thread that publishes its status when it is asked for.
//!
//! The thread looks for a request a few times a second, which costs one look-up of a name that is not there. A request is
//! whatever the file holds that it did not hold before: what a process left behind that is gone is answered once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::fit::encode_in;
use super::{LONGEST_STATUS, REQUEST, STATUS, Status, UNFINISHED};
use crate::base::rng::Rng;
use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, thread::JoinHandle};
use crate::vfs::{Access, Fs, Layer, PathKind, remove_leftover};

/// How long requests wait at most.
const PATIENCE: Duration = Duration::from_millis(100);
/// No request is longer.
pub(super) const LONGEST_REQUEST: u64 = 64;

/// The thread.
pub(crate) struct Publisher {
    stopping: Arc<Stopping>,
    thread: Mutex<Option<JoinHandle<()>>>,
    files: Arc<Files>,
}

#[derive(Default)]
struct Stopping {
    told: Mutex<bool>,
    changed: Condvar,
}

impl Stopping {
    /// Waits for the next look; false if there is to be none.
    fn wait(&self) -> bool {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(told, PATIENCE, |told| !*told);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Publisher {
    /// Starts publishing in `dir`, which has the database, what `collect` gives; the thread ends when that is nothing.
    pub(crate) fn start(
        fs: &Arc<dyn Fs>,
        dir: &Path,
        collect: impl Fn() -> Option<Status> + Send + 'static,
    ) -> Result<Self> {
        let files = Arc::new(Files { fs: Arc::clone(fs), dir: dir.to_path_buf() });
        files.remove();
        let stopping = Arc::<Stopping>::default();
        let (told, theirs) = (Arc::clone(&stopping), Arc::clone(&files));
        let thread = crate::sync::thread::Builder::new()
            .name("turbidite-status".into())
            .spawn(move || publish(&told, &theirs, &collect))
            .map_err(|error| Error::io("start a thread for", "turbidite".as_ref(), None, error))?;
        Ok(Self { stopping, thread: Mutex::new(Some(thread)), files })
    }

    /// Stops the thread, waits for it and removes its files: whoever watches sees that the database is closed.
    pub(crate) fn stop(&self) {
        *self.stopping.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopping.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if thread.join().is_err() {
            log::error!("the thread that publishes the status ended with a panic");
        }
        self.files.remove();
    }
}

fn publish(stopping: &Stopping, files: &Files, collect: &dyn Fn() -> Option<Status>) {
    let session = Rng::entropy();
    let (mut number, mut answered) = (0, None);
    while stopping.wait() {
        let request = files.request();
        if request.is_none() || request == answered {
            continue;
        }
        answered = request;
        let Some(status) = collect() else { return };
        number += 1;
        if let Err(error) = files.write(&encode_in(LONGEST_STATUS, (session, number), status)) {
            log::debug!("the status cannot be published: {error}");
        }
    }
}

struct Files {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
}

impl Files {
    /// What asks for a status, if anything does.
    fn request(&self) -> Option<Vec<u8>> {
        let path = self.dir.join(REQUEST);
        match self.fs.kind(&path) {
            Ok(Some(PathKind::File { len: 1..=LONGEST_REQUEST })) => {}
            _ => return None,
        }
        read(&*self.fs, &path, LONGEST_REQUEST)
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        replace(&*self.fs, &self.dir, (STATUS, UNFINISHED), bytes)
    }

    /// Removes what is there of a process before, or of this one.
    fn remove(&self) {
        let names = self.fs.list(&self.dir).unwrap_or_default();
        let is_ours = |name: &&String| name.starts_with(STATUS) || name.starts_with(REQUEST);
        for name in names.iter().filter(is_ours) {
            if let Err(error) = remove_leftover(&*self.fs, &self.dir.join(name)) {
                log::debug!("{name} stays behind: {error}");
            }
        }
    }
}

/// The bytes of a file that is no longer than `most`; `None` if they cannot be had.
pub(super) fn read(fs: &dyn Fs, path: &Path, most: u64) -> Option<Vec<u8>> {
    let file = fs.open(path, Access::Read, Layer::Positional).ok()?;
    let len = file.len().ok().filter(|len| *len <= most)?;
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes).ok()?;
    Some(bytes)
}

/// Gives the file `name` these bytes in one step, not safe from power loss. What is unfinished has `ending` behind its name.
pub(super) fn replace(
    fs: &dyn Fs,
    dir: &Path,
    (name, ending): (&str, &str),
    bytes: &[u8],
) -> Result<()> {
    let unfinished = dir.join(format!("{name}.{ending}"));
    remove_leftover(fs, &unfinished)?;
    let file = fs.create(&unfinished, Layer::Positional)?;
    let replaced = file.write_at(0, bytes).and_then(|()| fs.rename(&unfinished, &dir.join(name)));
    if replaced.is_err() {
        remove_leftover(fs, &unfinished)?;
    }
    replaced
}
