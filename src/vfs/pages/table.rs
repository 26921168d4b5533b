//! Which frame holds which page: a hash table of chains through the frames.
//!
//! Thread safety: looking up takes no lock. Changes are made under the directory's lock. A look-up that meets a
//! change may be led into another chain and miss a page that is there; it never finds a wrong one, because what
//! it finds is pinned and checked again. So whoever misses asks again under the lock, where answers are exact.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::Key;
use super::frames::{Frames, Pin};

/// How many links a look-up without the lock follows: chains are short, and one that goes on longer is
/// being led astray.
const MAX_LINKS: usize = 32;

/// The heads of the chains: the index of a frame plus 1, or 0.
#[derive(Debug)]
pub(super) struct Table {
    heads: Box<[AtomicU32]>,
    /// The hash's highest bits name the chain.
    shift: u32,
}

impl Table {
    /// A table for so many frames.
    pub(super) fn new(frames: usize) -> Self {
        let size = Self::size(frames);
        Self {
            heads: (0..size).map(|_| AtomicU32::new(0)).collect(),
            shift: u64::BITS - size.trailing_zeros(),
        }
    }

    fn size(frames: usize) -> usize {
        (frames * 2).next_power_of_two()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.heads)
    }

    /// The bytes of a table for so many frames.
    pub(super) fn bytes_of(frames: usize) -> usize {
        Self::size(frames) * size_of::<AtomicU32>()
    }

    #[inline]
    fn head(&self, key: Key) -> &AtomicU32 {
        &self.heads[(key.hash() >> self.shift) as usize]
    }

    /// Finds a page and pins it, without a lock. It may be missed while the table changes. What lies `at`
    /// bytes into the page is asked for as soon as the frame is guessed, so that it comes while the guess is
    /// checked.
    #[inline]
    pub(super) fn pin<'a>(&self, frames: &'a Frames, key: Key, at: usize) -> Option<Pin<'a>> {
        let mut link = self.head(key).load(Acquire);
        if let Some(index) = link.checked_sub(1) {
            frames.prefetch(index, at);
        }
        for _ in 0..MAX_LINKS {
            let index = link.checked_sub(1)?;
            if frames.key(index) == key {
                return frames.pin(index, key);
            }
            link = frames.next(index).load(Acquire);
        }
        None
    }

    /// The frame that holds a page. Under the lock.
    pub(super) fn find(&self, frames: &Frames, key: Key) -> Option<u32> {
        let mut link = self.head(key).load(Relaxed);
        while let Some(index) = link.checked_sub(1) {
            if frames.key(index) == key {
                return Some(index);
            }
            link = frames.next(index).load(Relaxed);
        }
        None
    }

    /// Enters a frame that was published with this key. Under the lock.
    pub(super) fn insert(&self, frames: &Frames, index: u32, key: Key) {
        let head = self.head(key);
        frames.next(index).store(head.load(Relaxed), Relaxed);
        head.store(index + 1, Release);
    }

    /// Takes a frame out that was entered with this key. Under the lock.
    pub(super) fn remove(&self, frames: &Frames, index: u32, key: Key) {
        let mut link = self.head(key);
        while let Some(at) = link.load(Relaxed).checked_sub(1) {
            if at == index {
                link.store(frames.next(index).load(Relaxed), Release);
                return;
            }
            link = frames.next(at);
        }
    }
}
