//! Something that is being done to a page that is in no frame: those who want the page wait for its end.
//!
//! Thread safety: one finishes, any number wait.

use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// A read or write that is under way. What came of it is for who carries it out: it may be of other pages, too.
#[derive(Debug, Default)]
pub(super) struct Flight {
    landed: Mutex<bool>,
    changed: Condvar,
}

impl Flight {
    fn landed(&self) -> MutexGuard<'_, bool> {
        self.landed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it.
    pub(super) fn land(&self) {
        *self.landed() = true;
        self.changed.notify_all();
    }

    /// Waits for the end. The page may be in a frame then, or not: look again.
    pub(super) fn wait(&self) {
        let mut landed = self.landed();
        while !*landed {
            landed = self.changed.wait(landed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
