//! Memory in which neighbouring pages lie side by side, for one read or write of all of them.
//!
//! Thread safety: a plain value. Its bytes start at a multiple of 4096, as direct I/O wants it.

use std::ops::{Deref, DerefMut};

const ADDRESS: usize = 4096;

/// A run of bytes at an aligned address.
#[derive(Debug, Default)]
pub(super) struct Bounce {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Bounce {
    /// `len` zeros.
    pub(super) fn new(len: usize) -> Self {
        let mut bounce = Self::default();
        bounce.resize(len);
        bounce
    }

    /// Makes it `len` bytes long; what they are is not said.
    pub(super) fn resize(&mut self, len: usize) {
        if self.start + len > self.bytes.len() {
            self.bytes = vec![0; len + ADDRESS - 1];
            self.start = self.bytes.as_ptr().align_offset(ADDRESS);
        }
        self.len = len;
    }
}

impl Deref for Bounce {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Bounce {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
