//! One io_uring: reads are handed to the kernel together, with one call as a rule.
//!
//! Invariant: the kernel writes into a buffer only between the submission of its read and its completion,
//! and for as long neither the buffer is touched nor freed. [`Ring::read`] returns when all are completed;
//! where it cannot wait for that, the buffers are given up for good.

use std::io;
use std::mem;
use std::os::fd::AsRawFd;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};

use super::super::RawRead;
use super::View;

/// A ring. One batch at a time.
pub(super) struct Ring {
    ring: IoUring,
    depth: usize,
}

impl Ring {
    /// A ring for `depth` reads at a time; an error if the kernel does not allow it.
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(depth as u32)?, depth })
    }

    /// Makes all reads. Gives the bytes of each, or `None` if it failed or came out short. After an error
    /// the ring is of no more use.
    pub(super) fn read(&mut self, mut reads: Vec<RawRead<'_>>) -> io::Result<Vec<Option<View>>> {
        let entries: Vec<Entry> = reads.iter_mut().enumerate().map(entry).collect();
        let mut got = vec![0; reads.len()];
        if let Err(error) = self.complete(&entries, &mut got) {
            // The kernel may still write to them.
            mem::forget(reads);
            return Err(error);
        }
        Ok(reads.into_iter().zip(got).map(|(read, got)| delivered(read, got)).collect())
    }

    /// Submits all entries and waits for them; `got` takes their results.
    fn complete(&mut self, entries: &[Entry], got: &mut [i32]) -> io::Result<()> {
        let mut waiting = entries;
        let mut in_flight = 0;
        while !waiting.is_empty() || in_flight > 0 {
            let (now, later) = waiting.split_at(waiting.len().min(self.depth - in_flight));
            // SAFETY: the entries' buffers live until their completion, see above; the descriptors are
            // borrowed for as long, and the kernel holds the files of what it has taken.
            unsafe { self.ring.submission().push_multiple(now) }.map_err(io::Error::other)?;
            in_flight += now.len();
            waiting = later;
            // With more to submit, places that become free are filled at once.
            let enough = if waiting.is_empty() { in_flight } else { 1 };
            match self.ring.submit_and_wait(enough) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for completion in self.ring.completion() {
                if let Some(got) = got.get_mut(completion.user_data() as usize) {
                    *got = completion.result();
                }
                in_flight -= 1;
            }
        }
        Ok(())
    }
}

/// What the kernel is asked for; the read's number comes back with its result.
fn entry((number, read): (usize, &mut RawRead<'_>)) -> Entry {
    let fill = &mut read.buffer[read.fill.clone()];
    let len = u32::try_from(fill.len()).unwrap_or(0);
    opcode::Read::new(types::Fd(read.descriptor.as_raw_fd()), fill.as_mut_ptr(), len)
        .offset(read.offset)
        .build()
        .user_data(number as u64)
}

/// The bytes asked for, if `got` bytes from the start of what was to be filled reach to their end.
fn delivered(read: RawRead<'_>, got: i32) -> Option<View> {
    let filled = read.fill.start + usize::try_from(got).ok()?;
    (filled >= read.part.end).then(|| View::from(read.buffer).slice(read.part))
}
