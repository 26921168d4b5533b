//! Writing a file once, from front to back.
//!
//! Small appends are gathered in a buffer and leave it in large writes. On a file with an alignment every
//! write starts and ends at a multiple of it: the last block is padded with zeros, and the file is then
//! cut to its true length.
//!
//! Thread safety: one writer, by `&mut`. After an error the file's end is unknown, so the appender gives
//! the same error to every later call.

use std::io::IoSlice;
use std::sync::Arc;

use super::File;
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};

/// Appends to a new file through a buffer.
#[derive(Debug)]
pub struct Appender {
    file: Arc<dyn File>,
    /// What was appended and not written yet; it belongs at `written`.
    buffer: Vec<u8>,
    capacity: usize,
    alignment: usize,
    written: u64,
    failed: Option<Error>,
}

impl Appender {
    /// An appender that starts at the front of `file` and gathers `buffer_bytes`, rounded up to a
    /// multiple of the file's alignment.
    #[must_use]
    pub fn new(file: Arc<dyn File>, buffer_bytes: usize) -> Self {
        let alignment = file.alignment().max(1);
        let capacity = buffer_bytes.max(1).next_multiple_of(alignment);
        let buffer = Vec::with_capacity(capacity);
        Self { file, buffer, capacity, alignment, written: 0, failed: None }
    }

    /// Where the next appended byte goes, in bytes from the start of the file.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends `bytes`.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.failed.is_none() && bytes.len() < self.capacity - self.buffer.len() {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.append_parts(&[IoSlice::new(bytes)])
    }

    /// Appends all of `parts`, one behind the other. What is large goes to the file in one call, without
    /// passing through the buffer, where the file's alignment allows it.
    pub fn append_parts(&mut self, parts: &[IoSlice<'_>]) -> Result<()> {
        self.attempt(|this| {
            let len: usize = parts.iter().map(|part| part.len()).sum();
            if this.alignment == 1 && len >= this.capacity {
                return this.write_around(parts, len);
            }
            parts.iter().try_for_each(|part| this.gather(part))
        })
    }

    /// Hands what was appended to the kernel. On a file with an alignment, less than one block stays
    /// behind until [`finish`](Self::finish).
    pub fn flush(&mut self) -> Result<()> {
        self.attempt(|this| {
            this.write_whole_blocks()?;
            this.file.flush()
        })
    }

    fn write_whole_blocks(&mut self) -> Result<()> {
        let whole = self.buffer.len() - self.buffer.len() % self.alignment;
        self.write_front(whole)
    }

    /// Writes the rest, makes the file safe from power loss and gives it back.
    pub fn finish(mut self) -> Result<Arc<dyn File>> {
        self.attempt(Self::write_whole_blocks)?;
        if !self.buffer.is_empty() {
            let end = self.position();
            self.buffer.resize(self.alignment, 0);
            self.write_front(self.alignment)?;
            self.file.truncate(end)?;
        }
        if !planted(Bug::SkipFileSync) {
            self.file.sync()?;
        }
        Ok(self.file)
    }

    /// Does a step unless an earlier one failed, and remembers its failure.
    fn attempt(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        step(self).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Copies `bytes` into the buffer, writing it out whenever it is full.
    fn gather(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(self.capacity - self.buffer.len()));
            self.buffer.extend_from_slice(part);
            if self.buffer.len() == self.capacity && planted(Bug::LoseFullBuffer) {
                (self.written, self.buffer) = (self.position(), Vec::new());
            }
            if self.buffer.len() == self.capacity {
                self.write_front(self.capacity)?;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Writes the buffer and, behind it, `parts` with one call.
    fn write_around(&mut self, parts: &[IoSlice<'_>], len: usize) -> Result<()> {
        let mut all = Vec::with_capacity(1 + parts.len());
        all.push(IoSlice::new(&self.buffer));
        all.extend_from_slice(parts);
        self.file.write_vectored_at(self.written, &all)?;
        self.written += (self.buffer.len() + len) as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the first `len` bytes of the buffer.
    fn write_front(&mut self, len: usize) -> Result<()> {
        if len > 0 {
            self.file.write_at(self.written, &self.buffer[..len])?;
            self.written += len as u64;
            self.buffer.drain(..len);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::path::Path;

    use super::*;
    use crate::vfs::{
        Effect, Errno, Fault, FaultFs, Fs, Hint, IoStats, Layer, MemoryFs, Operation, View,
    };

    /// A file that takes whole blocks only.
    #[derive(Debug)]
    struct Blocks(Arc<dyn File>);

    const BLOCK: usize = 64;

    impl File for Blocks {
        fn path(&self) -> &Path {
            self.0.path()
        }
        fn len(&self) -> Result<u64> {
            self.0.len()
        }
        fn truncate(&self, len: u64) -> Result<()> {
            self.0.truncate(len)
        }
        fn allocate(&self, len: u64) -> Result<()> {
            self.0.allocate(len)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.0.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            assert!(offset.is_multiple_of(BLOCK as u64) && bytes.len().is_multiple_of(BLOCK));
            self.0.write_at(offset, bytes)
        }
        fn write_vectored_at(&self, _: u64, _: &[IoSlice<'_>]) -> Result<()> {
            panic!("parts are not aligned")
        }
        fn sync(&self) -> Result<()> {
            self.0.sync()
        }
        fn advise(&self, range: Range<u64>, hint: Hint) {
            self.0.advise(range, hint);
        }
        fn alignment(&self) -> usize {
            BLOCK
        }
        fn view(&self, range: Range<u64>) -> Result<View> {
            self.0.view(range)
        }
        fn stats(&self) -> IoStats {
            self.0.stats()
        }
    }

    fn new_file(fs: &dyn Fs) -> Arc<dyn File> {
        fs.create(Path::new("a"), Layer::default()).unwrap()
    }

    #[test]
    fn blocks_are_whole_and_the_length_is_true() {
        for total in [0, 1, 63, 64, 65, 1000, 1024] {
            let blocks = Arc::new(Blocks(new_file(&MemoryFs::new())));
            let mut appender = Appender::new(blocks, 100);
            let expected: Vec<u8> = (0..total).map(|i| i as u8).collect();
            for (index, part) in expected.chunks(37).enumerate() {
                appender.append(part).unwrap();
                if index % 5 == 0 {
                    appender.flush().unwrap();
                }
            }
            appender.append_parts(&[IoSlice::new(&expected), IoSlice::new(&expected)]).unwrap();
            let file = appender.finish().unwrap();
            assert_eq!(*file.view(0..file.len().unwrap()).unwrap(), expected.repeat(3));
        }
    }

    #[test]
    fn small_appends_are_gathered_and_large_ones_go_straight_through() {
        let file = new_file(&MemoryFs::new());
        let mut appender = Appender::new(Arc::clone(&file), 1000);
        for _ in 0..100 {
            appender.append(&[1; 95]).unwrap();
        }
        assert_eq!(file.stats().writes, 9);
        appender.append(&[2; 50_000]).unwrap();
        assert_eq!(file.stats().writes, 10);
        assert_eq!(file.len().unwrap(), appender.position());
        let file = appender.finish().unwrap();
        assert_eq!((file.stats().writes, file.stats().syncs), (10, 1));
    }

    #[test]
    fn a_failure_stays() {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        let mut appender = Appender::new(new_file(&fs), 10);
        fs.arm(Fault::new(Operation::Write, Effect::FailShort(3, Errno::Raw(5))));
        appender.append(b"01234567").unwrap();
        let error = appender.append(b"89ab").unwrap_err().to_string();
        assert_eq!(appender.append(b"").unwrap_err().to_string(), error);
        assert_eq!(appender.flush().unwrap_err().to_string(), error);
        assert_eq!(appender.finish().unwrap_err().to_string(), error);
        assert_eq!(fs.calls(Operation::Write), 1);
    }
}
