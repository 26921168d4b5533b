//! What a memtable takes of the budget.
//!
//! Thread safety: any thread may grow and shrink it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use crate::budget::Budget;
use crate::sync::Mutex;

/// The memory of one memtable. It counts against the writers' share of the budget until it is closed.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
    is_open: Mutex<bool>,
}

/// Memory that is needed for a while.
pub(super) struct Scratch<'a> {
    account: &'a Account,
    bytes: usize,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.account.shrink(self.bytes);
    }
}

impl Account {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: AtomicUsize::new(0), is_open: Mutex::new(true) }
    }

    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Bytes taken.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn grow(&self, bytes: usize) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if *is_open {
            self.budget.grow_memtables(bytes);
        }
    }

    pub(super) fn shrink(&self, bytes: usize) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if *is_open {
            self.budget.shrink_memtables(bytes);
        }
    }

    /// Counts `bytes` for as long as what is given lives.
    pub(super) fn scratch(&self, bytes: usize) -> Scratch<'_> {
        self.grow(bytes);
        Scratch { account: self, bytes }
    }

    /// From now on nothing of it counts against the budget.
    pub(super) fn close(&self) {
        let mut is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_open, false) {
            self.budget.shrink_memtables(self.bytes());
        }
    }
}
