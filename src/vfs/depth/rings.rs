//! The rings of a database: each batch takes one and gives it back.
//!
//! Where the kernel refuses a ring, or a file offers no raw read, or the ring does not deliver all bytes of a
//! read, the pool of threads reads instead: what is wrong with a file is told in one way only.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pool::Pool;
use super::ring::Ring;
use super::{ReadRequest, View};
use crate::error::Result;
use crate::sync::{Mutex, MutexGuard};

/// How many reads a ring has in flight. Unlike a thread, a place in a ring costs next to nothing.
const DEPTH: usize = 64;

/// Rings that no batch uses at the moment.
#[derive(Default)]
pub(super) struct Rings {
    idle: Mutex<Vec<Ring>>,
    refused: AtomicBool,
}

impl Rings {
    /// Makes all reads: through a ring what can be, and the others by `pool`.
    pub(super) fn read(&self, reads: Vec<ReadRequest>, pool: &Pool) -> Vec<Result<View>> {
        let Some(ring) = (reads.len() > 1).then(|| self.take()).flatten() else {
            return pool.read(reads);
        };
        let views = self.submit(ring, &reads);
        let left = reads.into_iter().zip(&views).filter(|(_, view)| view.is_none());
        let mut rest = pool.read(left.map(|(read, _)| read).collect()).into_iter();
        let mut pooled = || rest.next().expect("the pool answers every read");
        views.into_iter().map(|view| view.map_or_else(&mut pooled, Ok)).collect()
    }

    /// What the ring delivers of the reads.
    fn submit(&self, mut ring: Ring, reads: &[ReadRequest]) -> Vec<Option<View>> {
        let mut views = vec![None; reads.len()];
        let mut places = Vec::new();
        let mut raw = Vec::new();
        for (at, read) in reads.iter().enumerate() {
            if let Some(read) = read.file.raw_read(read.range.clone()) {
                places.push(at);
                raw.push(read);
            }
        }
        match ring.read(raw) {
            Ok(delivered) => {
                self.idle().push(ring);
                places.into_iter().zip(delivered).for_each(|(at, view)| views[at] = view);
            }
            Err(error) => {
                // What it was to read into is given up for good, so that it is not tried again.
                self.refused.store(true, Ordering::Relaxed);
                log::debug!("a ring failed, threads read instead from now on: {error}");
            }
        }
        views
    }

    fn take(&self) -> Option<Ring> {
        if let Some(ring) = self.idle().pop() {
            return Some(ring);
        }
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        match Ring::new(DEPTH) {
            Ok(ring) => Some(ring),
            Err(error) => {
                if !self.refused.swap(true, Ordering::Relaxed) {
                    log::debug!("no io_uring, threads read instead: {error}");
                }
                None
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Ring>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
