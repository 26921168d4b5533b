//! Version numbers of main buckets: how readers learn that something moved while they looked.
//!
//! A sequence lock that many buckets share. The version is odd while the writer moves entries. A reader
//! takes the version, looks, and compares. This needs no fences, as all stores to buckets release and all
//! loads of readers acquire: who has seen a store made while the version was odd finds it changed.
//!
//! Thread safety: one thread changes versions, any number read them.

use std::sync::atomic::{AtomicU32, Ordering};

/// A power of two. Above so many buckets, both buckets of a split have the same version.
const STRIPES: usize = 1024;

pub(super) struct Versions(Box<[AtomicU32; STRIPES]>);

/// A version that was even. After 2^32 changes it comes again; no reader is that slow.
#[derive(Clone, Copy)]
pub(crate) struct Version<'a> {
    now: &'a AtomicU32,
    seen: u32,
}

impl Versions {
    /// The bytes they take.
    pub(super) const SIZE: usize = STRIPES * size_of::<AtomicU32>();

    pub(super) fn new() -> Self {
        Self(Box::new([const { AtomicU32::new(0) }; STRIPES]))
    }

    /// The version of a bucket, unless it is being changed.
    #[inline]
    pub(super) fn read(&self, bucket: u64) -> Option<Version<'_>> {
        let now = &self.0[bucket as usize % STRIPES];
        let seen = now.load(Ordering::Acquire);
        seen.is_multiple_of(2).then_some(Version { now, seen })
    }

    /// Runs `change`, which moves entries of the two buckets, or of one that is given twice.
    #[inline]
    pub(super) fn change(&self, one: u64, other: u64, change: impl FnOnce()) {
        let (one, other) = (one as usize % STRIPES, other as usize % STRIPES);
        self.advance(one);
        if other != one {
            self.advance(other);
        }
        change();
        if other != one {
            self.advance(other);
        }
        self.advance(one);
    }

    #[inline]
    fn advance(&self, stripe: usize) {
        let version = self.0[stripe].load(Ordering::Relaxed);
        self.0[stripe].store(version.wrapping_add(1), Ordering::Release);
    }
}

impl Version<'_> {
    /// Whether nothing was moved or removed since the version was read.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.now.load(Ordering::Relaxed) == self.seen
    }
}
