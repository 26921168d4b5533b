//! The side of a process that watches.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::encoding::{Stamp, decode};
use super::publisher::{LONGEST_REQUEST, read, replace};
use super::{LONGEST_STATUS, REQUEST, STATUS, Status};
use crate::base::rng::Rng;
use crate::error::Result;
use crate::vfs::{Fs, remove_leftover};

/// How often it is looked whether there is an answer.
const LOOKS: Duration = Duration::from_millis(10);

/// Asks the process that has a database open what it is doing: made by [`DatabaseBuilder::watch`](crate::DatabaseBuilder::watch).
///
/// It asks with a file, `watch.request`, in the database's directory, and is answered with another one, `watch.status`,
/// if that process [publishes its status](crate::DatabaseBuilder::publish_status). Any number may watch. What a file says
/// that is not well formed counts as no answer, and what it said before the question does not count.
pub struct Watch {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// Who asks, and how often they have.
    watcher: u64,
    asked: u64,
}

impl Watch {
    pub(crate) fn new(fs: Arc<dyn Fs>, dir: PathBuf) -> Self {
        Self { fs, dir, watcher: Rng::entropy(), asked: 0 }
    }

    /// Asks, and waits for an answer for as long as `patience`; `None` if there is none: the database is not open, or by
    /// a process that does not publish its status, or is stuck. An answer takes a tenth of a second as a rule.
    ///
    /// # Errors
    /// What writing the request gives, if nobody else's is answered meanwhile: the file system may be read-only.
    pub fn ask(&mut self, patience: Duration) -> Result<Option<Status>> {
        let begin = crate::sync::now();
        let before = self.published().map(|(stamp, _)| stamp);
        self.asked += 1;
        let mut asked = self.write_request();
        loop {
            let answer = self.published().filter(|(stamp, _)| Some(*stamp) != before);
            if let Some((_, status)) = answer {
                return Ok(Some(status));
            }
            let left = patience.saturating_sub(crate::sync::now() - begin);
            if left.is_zero() {
                return asked.map(|()| None);
            }
            // Whoever opens the database removes what is there of before, as does one who looks no more at the wrong moment.
            if matches!(self.fs.kind(&self.dir.join(REQUEST)), Ok(None)) {
                asked = self.write_request();
            }
            crate::sync::thread::sleep(left.min(LOOKS));
        }
    }

    fn request(&self) -> String {
        format!("{:016x} {}", self.watcher, self.asked)
    }

    fn write_request(&self) -> Result<()> {
        let ending = format!("{:016x}", self.watcher);
        replace(&*self.fs, &self.dir, (REQUEST, &ending), self.request().as_bytes())
    }

    /// Whether the request that is there is this one's last.
    fn is_ours(&self) -> bool {
        let found = read(&*self.fs, &self.dir.join(REQUEST), LONGEST_REQUEST);
        found.is_some_and(|found| found == self.request().as_bytes())
    }

    /// What is published, from whenever it is.
    fn published(&self) -> Option<(Stamp, Status)> {
        decode(&read(&*self.fs, &self.dir.join(STATUS), LONGEST_STATUS)?)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Another one may wait for the answer to theirs.
        if self.asked > 0
            && self.is_ours()
            && let Err(error) = remove_leftover(&*self.fs, &self.dir.join(REQUEST))
        {
            log::debug!("{REQUEST} stays behind: {error}");
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("dir", &self.dir).finish_non_exhaustive()
    }
}
