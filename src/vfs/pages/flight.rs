//! Something that is being done to a page that is in no frame: those who want the page wait for its end.
//!
//! Thread safety: one finishes, any number wait.

use std::sync::PoisonError;

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A read or write that is under way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    landed: Mutex<Option<Result<()>>>,
    changed: Condvar,
}

impl Flight {
    fn landed(&self) -> MutexGuard<'_, Option<Result<()>>> {
        self.landed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it, with the error it met.
    pub(super) fn land(&self, error: Option<Error>) {
        *self.landed() = Some(error.map_or(Ok(()), Err));
        self.changed.notify_all();
    }

    /// Waits for the end. Without an error the page may be in a frame now, or not: look again.
    pub(super) fn wait(&self) -> Result<()> {
        let mut landed = self.landed();
        loop {
            match &*landed {
                Some(outcome) => return outcome.clone(),
                None => landed = self.changed.wait(landed).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
