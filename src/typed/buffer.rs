//! A buffer for what codecs write: short encodings take no memory but the stack's.
//!
//! Thread safety: plain data, one owner.

use std::io;
use std::ops::Deref;

/// The most bytes that are held in the buffer itself: those of a key of a few numbers, or of a short name and one.
const INLINE: usize = 64;

/// Bytes that are put one behind the other. Up to 64 are held in the buffer itself, more in memory of their own.
///
/// It derefs to the bytes, and is a [`Write`](io::Write) for encoders that want one.
#[derive(Clone)]
pub struct Buffer {
    inline: [u8; INLINE],
    /// How many bytes are in `inline`, unless there are some in `heap`: then all are there.
    len: usize,
    heap: Vec<u8>,
}

impl Buffer {
    #[inline]
    pub(super) fn new() -> Self {
        Self { inline: [0; INLINE], len: 0, heap: Vec::new() }
    }

    /// Adds `bytes` at the end.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.inline.get_mut(self.len..end) {
            Some(room) if self.heap.is_empty() => {
                room.copy_from_slice(bytes);
                self.len = end;
            }
            _ => self.extend_heap(bytes),
        }
    }

    #[cold]
    fn extend_heap(&mut self, bytes: &[u8]) {
        if self.heap.is_empty() {
            self.heap.reserve(self.len + bytes.len());
            self.heap.extend_from_slice(&self.inline[..self.len]);
        }
        self.heap.extend_from_slice(bytes);
    }

    /// Inverts all bits from byte `start` on.
    pub(super) fn invert_from(&mut self, start: usize) {
        let bytes =
            if self.heap.is_empty() { &mut self.inline[..self.len] } else { &mut self.heap[..] };
        bytes[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if self.heap.is_empty() { &self.inline[..self.len] } else { &self.heap }
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_short_read_alike() {
        for step in [1, 7, INLINE, INLINE + 1, 200] {
            let bytes: Vec<u8> = (0..600).map(|n| n as u8).collect();
            let mut buffer = Buffer::new();
            for (done, part) in bytes.chunks(step).enumerate() {
                assert_eq!(*buffer, bytes[..done * step]);
                buffer.extend(part);
                buffer.extend(&[]);
            }
            assert_eq!(*buffer, bytes[..]);
            buffer.invert_from(3);
            assert_eq!((buffer[2], buffer[3], buffer[599]), (2, !3, !(599 % 256) as u8));
        }
        let mut short = Buffer::new();
        short.extend(&[1, 2]);
        short.invert_from(1);
        assert_eq!(*short, [1, !2]);
    }
}
