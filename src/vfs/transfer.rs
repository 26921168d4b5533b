//! Transfers that are whole, of system calls that need not be.
//!
//! A call may be interrupted, and may move fewer bytes than it is asked to: Linux moves at most 2 GiB less a page, and stops early at
//! the end of a file, for want of space, or for a signal. The loops here go on where a call has stopped, until all is
//! done, a call moves nothing, or one fails.
//!
//! Thread safety: functions without state; calls name their place in the file.

use std::fmt::Debug;
use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

/// The system calls that move bytes of a file, each once and as it comes.
pub(super) trait Calls: Debug + Send + Sync {
    /// The file, for calls that move no bytes.
    fn file(&self) -> &fs::File;
    /// Reads to the front of `buffer`; gives how many bytes.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Reads to memory that `bytes` has got and not used yet, which is not zeroed first.
    fn read_behind(&self, offset: u64, bytes: &mut Vec<u8>) -> io::Result<usize>;
    /// Writes bytes from the front of `bytes`; gives how many.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Writes bytes from the front of `parts`, one behind the other; gives how many.
    fn write_vectored(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl Calls for fs::File {
    #[inline]
    fn file(&self) -> &fs::File {
        self
    }

    #[inline]
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    #[inline]
    fn read_behind(&self, offset: u64, bytes: &mut Vec<u8>) -> io::Result<usize> {
        Ok(rustix::io::pread(self, rustix::buffer::spare_capacity(bytes), offset)?)
    }

    #[inline]
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.write_at(bytes, offset)
    }

    #[inline]
    fn write_vectored(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::pwritev(self, parts, offset)?)
    }
}

/// Makes a call for what is left at `offset` behind `done` bytes; gives how many bytes it moved, or `None` if it was interrupted.
#[inline]
fn step(
    offset: u64,
    done: usize,
    call: impl FnOnce(u64) -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    match call(offset.checked_add(done as u64).ok_or(Errno::OVERFLOW)?) {
        Ok(moved) => Ok(Some(moved)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads until `buffer` is full or the file ends; gives how many bytes there were.
#[inline]
pub(super) fn read(calls: &impl Calls, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match step(offset, done, |at| calls.read(at, &mut buffer[done..]))? {
            Some(0) => break,
            moved => done += moved.unwrap_or(0),
        }
    }
    Ok(done)
}

/// The same for a file that is read in whole blocks: behind an end in the middle of a block there is nothing to be asked for.
pub(super) fn read_blocks(
    calls: &impl Calls,
    block: usize,
    offset: u64,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match step(offset, done, |at| calls.read(at, &mut buffer[done..]))? {
            Some(0) => break,
            moved => done += moved.unwrap_or(0),
        }
        if !done.is_multiple_of(block) && offset + done as u64 >= calls.file().metadata()?.len() {
            break;
        }
    }
    Ok(done)
}

/// Up to `len` bytes at `offset` in a new buffer that is not zeroed first; fewer if the file ends.
#[inline]
pub(super) fn read_new(calls: &impl Calls, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    // A file may claim to be of any length.
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    while bytes.len() < len {
        if step(offset, bytes.len(), |at| calls.read_behind(at, &mut bytes))? == Some(0) {
            break;
        }
    }
    // The allocator may have given more room than was asked for, and the file filled it.
    bytes.truncate(len);
    Ok(bytes)
}

/// Writes all of `bytes`.
#[inline]
pub(super) fn write(calls: &impl Calls, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match step(offset, done, |at| calls.write(at, &bytes[done..]))? {
            Some(0) => return Err(io::ErrorKind::WriteZero.into()),
            moved => done += moved.unwrap_or(0),
        }
    }
    Ok(())
}

/// Writes all parts, one behind the other; gives their size.
pub(super) fn write_parts(
    calls: &impl Calls,
    offset: u64,
    parts: &[IoSlice<'_>],
) -> io::Result<usize> {
    let mut parts = parts.to_vec();
    let mut rest = &mut parts[..];
    let mut done = 0;
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match step(offset, done, |at| calls.write_vectored(at, rest))? {
            Some(0) => return Err(io::ErrorKind::WriteZero.into()),
            moved => {
                IoSlice::advance_slices(&mut rest, moved.unwrap_or(0));
                done += moved.unwrap_or(0);
            }
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::super::short_calls::{Answer, ShortCalls};
    use super::*;

    const LEN: usize = 1000;

    fn expected() -> Vec<u8> {
        (0..LEN).map(|at| (at % 251) as u8).collect()
    }

    /// Calls that answer in this way, of a file with the expected bytes from byte 100 on.
    fn filled(answer: impl Fn(u64) -> Answer + Send + Sync + 'static) -> ShortCalls {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&expected(), 100).unwrap();
        ShortCalls::new(file, 1, answer)
    }

    fn parts(bytes: &[u8]) -> Vec<IoSlice<'_>> {
        [&[][..]].into_iter().chain(bytes.chunks(7)).map(IoSlice::new).collect()
    }

    /// Every transfer over calls that answer in this way: it must not be seen in what comes of it.
    fn check(what: &str, answer: impl Fn(u64) -> Answer + Copy + Send + Sync + 'static) {
        let expected = expected();
        let mut buffer = [0; LEN + 10];
        assert_eq!(read(&filled(answer), 100, &mut buffer).unwrap(), LEN, "{what}");
        assert_eq!((&buffer[..LEN], &buffer[LEN..]), (&expected[..], &[0; 10][..]), "{what}");
        let mut buffer = [0; 1024];
        assert_eq!(read_blocks(&filled(answer), 512, 0, &mut buffer).unwrap(), 1024, "{what}");
        assert_eq!(buffer[100..], expected[..924], "{what}");
        assert_eq!(read_blocks(&filled(answer), 512, 1024, &mut buffer).unwrap(), 76, "{what}");
        assert_eq!(buffer[..76], expected[924..], "{what}");
        for len in [LEN, LEN + 10] {
            assert!(read_new(&filled(answer), 100, len).unwrap() == expected, "{what}");
        }
        let written = |write: &dyn Fn(&ShortCalls)| {
            let calls = ShortCalls::new(tempfile::tempfile().unwrap(), 1, answer);
            write(&calls);
            let mut all = vec![0; LEN + 200];
            let len = read(calls.file(), 0, &mut all).unwrap();
            all.truncate(len);
            all
        };
        let plain = [&[0; 100][..], &expected].concat();
        assert!(plain == written(&|calls| write(calls, 100, &expected).unwrap()), "{what}");
        let in_parts = written(&|calls| {
            assert_eq!(write_parts(calls, 100, &parts(&expected)).unwrap(), LEN, "{what}");
        });
        assert!(plain == in_parts, "{what}");
    }

    #[test]
    fn short_calls_and_interruptions_are_invisible_at_any_step() {
        check("whole calls", |_| Answer::Whole);
        for most in [1, 2, 7, 512, LEN - 1, LEN] {
            check(&format!("at most {most} bytes"), move |_| Answer::AtMost(most));
            for at in 0..20 {
                check(&format!("at most {most} bytes, call {at} interrupted"), move |call| {
                    if call == at { Answer::Interrupted } else { Answer::AtMost(most) }
                });
                check(&format!("call {at} of at most {most} bytes"), move |call| {
                    if call == at { Answer::AtMost(most) } else { Answer::Whole }
                });
            }
        }
        check("every second call interrupted", |call| match call % 4 {
            0 | 2 => Answer::Interrupted,
            1 => Answer::AtMost(3),
            _ => Answer::Whole,
        });
    }

    #[test]
    fn what_moves_nothing_or_fails_ends_a_transfer() {
        let at = |last: u64, end: Answer| {
            move |call| if call == last { end } else { Answer::AtMost(10) }
        };
        let mut buffer = [0; LEN];
        for last in 0..3 {
            let moved = 10 * last as usize;
            let ends = filled(at(last, Answer::AtMost(0)));
            assert_eq!(read(&ends, 100, &mut buffer).unwrap(), moved);
            let ends = filled(at(last, Answer::AtMost(0)));
            assert_eq!(read_new(&ends, 100, LEN).unwrap(), expected()[..moved]);
            let ends = filled(at(last, Answer::AtMost(0)));
            assert_eq!(read_blocks(&ends, 512, 0, &mut buffer).unwrap(), moved);
            for (end, kind) in [
                (Answer::AtMost(0), io::ErrorKind::WriteZero),
                (Answer::Failed, io::ErrorKind::StorageFull),
            ] {
                let failed = write(&filled(at(last, end)), 0, &buffer);
                assert_eq!(failed.unwrap_err().kind(), kind);
                let failed = write_parts(&filled(at(last, end)), 0, &parts(&buffer));
                assert_eq!(failed.unwrap_err().kind(), kind);
            }
            assert!(read(&filled(at(last, Answer::Failed)), 100, &mut buffer).is_err());
            assert!(read_blocks(&filled(at(last, Answer::Failed)), 512, 0, &mut buffer).is_err());
            assert!(read_new(&filled(at(last, Answer::Failed)), 100, LEN).is_err());
        }
        let behind = write(&filled(|_| Answer::AtMost(1)), u64::MAX, b"ab");
        assert!(behind.is_err(), "no file has a byte there");
    }

    #[test]
    fn more_parts_than_one_call_takes() {
        let file = tempfile::tempfile().unwrap();
        let expected: Vec<u8> = (0..5000_u32).flat_map(u32::to_le_bytes).collect();
        let mut parts = vec![IoSlice::new(&[]); 3000];
        parts.extend(expected.chunks(4).map(IoSlice::new));
        assert_eq!(write_parts(&file, 100, &parts).unwrap(), expected.len());
        assert_eq!(read_new(&file, 100, expected.len()).unwrap(), expected);
        assert_eq!(write_parts(&file, 0, &[]).unwrap(), 0);
    }
}
