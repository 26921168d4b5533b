//! Memory for the inner nodes that the trees of one file keep beside the cache.
//!
//! Where nodes are in the database's cache, all trees have one part of the memory budget for it, which is taken off what that cache has. A
//! keyspace with a cache of its own has that be so much smaller.
//!
//! Thread safety: any thread takes and gives back. Who finds no room takes no lock; who takes some has the caches divided anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::budget::Budget;
use crate::cache::OpenFiles;

/// What the trees of one file keep.
pub(super) struct Kept {
    room: Room,
    used: AtomicUsize,
}

enum Room {
    /// The part of all trees.
    Shared { budget: Arc<Budget>, open_files: Arc<OpenFiles> },
    /// So many bytes, which are booked with a cache.
    Own(usize),
}

impl Kept {
    /// Of what all trees have together.
    pub(super) fn shared(budget: &Arc<Budget>, open_files: &Arc<OpenFiles>) -> Self {
        let (budget, open_files) = (Arc::clone(budget), Arc::clone(open_files));
        Self { room: Room::Shared { budget, open_files }, used: AtomicUsize::new(0) }
    }

    /// Up to `most` bytes, for which there is room in any case.
    pub(super) fn of_its_own(most: usize) -> Self {
        Self { room: Room::Own(most), used: AtomicUsize::new(0) }
    }

    /// Bytes that are kept.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether there is room for `bytes` more now.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        match &self.room {
            Room::Shared { budget, .. } => budget.has_room_for_nodes(self.used(), bytes),
            Room::Own(most) => self.used() + bytes <= *most,
        }
    }

    /// Takes `bytes`; false if there is no room for them.
    pub(super) fn take(&self, bytes: usize) -> bool {
        match &self.room {
            Room::Shared { budget, open_files } => {
                let is_taken = budget.take_nodes(self.used(), bytes);
                if is_taken {
                    self.used.fetch_add(bytes, Ordering::Relaxed);
                    open_files.rebalance();
                }
                is_taken
            }
            Room::Own(most) => {
                let take = |used: usize| Some(used + bytes).filter(|used| used <= most);
                self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
            }
        }
    }

    /// Gives back bytes that were taken. What is divided for reads has them when it is divided next.
    pub(super) fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Room::Shared { budget, .. } = &self.room {
            budget.give_nodes(bytes);
        }
    }
}
