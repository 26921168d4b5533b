//! Structures and files by themselves: what is left of a write path when all but one part of it is taken away.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use crossbeam_skiplist::SkipMap;

use super::{Choices, Each, Reader, Seen, Setup, System, cannot};
use crate::failure::{Failure, Result};

/// A vector. The lock around it costs about ten nanoseconds, which the figures include.
struct RawVec(Mutex<Vec<(Vec<u8>, Vec<u8>)>>);

pub(super) fn vec() -> Box<dyn System> {
    Box::new(RawVec(Mutex::default()))
}

impl System for RawVec {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.push((key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn delete(&self, _key: &[u8]) -> Result<()> {
        cannot("vec", "delete")
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        cannot("vec", "read")
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// crossbeam-skiplist.
struct RawSkipMap(SkipMap<Vec<u8>, Vec<u8>>);

pub(super) fn skipmap() -> Box<dyn System> {
    Box::new(RawSkipMap(SkipMap::new()))
}

impl System for RawSkipMap {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.0.remove(key);
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(&self.0))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Reader for &SkipMap<Vec<u8>, Vec<u8>> {
    fn get(&mut self, key: &[u8], seen: Seen<'_>) -> Result<bool> {
        let entry = SkipMap::get(self, key);
        if let Some(entry) = &entry {
            seen(entry.value());
        }
        Ok(entry.is_some())
    }

    fn scan(&mut self, from: &[u8], backwards: bool, each: Each<'_>) -> Result<()> {
        let mut range = self.range(from.to_vec()..);
        while let Some(entry) = if backwards { range.next_back() } else { range.next() } {
            if !each(entry.key(), entry.value()) {
                break;
            }
        }
        Ok(())
    }
}

/// How records are written to the one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// One call for each record, through the system's page cache.
    Write,
    /// The same, at an offset that the caller keeps.
    WriteAt,
    /// Through a buffer of 8 KiB.
    Buffered,
    /// One call for each record, with O_SYNC.
    OpenSync,
    /// One call and one fdatasync for each record.
    DataSync,
    /// One call for each record, and one fsync at the end.
    SyncAtEnd,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "write" => Self::Write,
            "pwrite" => Self::WriteAt,
            "buffered" => Self::Buffered,
            "o-sync" => Self::OpenSync,
            "fdatasync" => Self::DataSync,
            "sync-at-end" => Self::SyncAtEnd,
            _ => {
                return Err("one of write, pwrite, buffered, o-sync, fdatasync, sync-at-end".into());
            }
        })
    }
}

struct OneFile {
    /// With how many bytes the file has.
    writer: Mutex<(BufWriter<File>, u64)>,
    mode: Mode,
    path: PathBuf,
}

pub(super) fn file(
    _setup: &Setup,
    choices: &mut Choices<'_>,
    path: &Path,
) -> Result<Box<dyn System>> {
    let mode = choices.take("mode")?.unwrap_or(Mode::Write);
    let path = path.join("records");
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(mode != Mode::WriteAt);
    if mode == Mode::OpenSync {
        options.custom_flags(rustix::fs::OFlags::SYNC.bits().cast_signed());
    }
    let opened = options.open(&path).map_err(|error| Failure::io("create", &path, &error))?;
    let writer = Mutex::new((BufWriter::with_capacity(8 << 10, opened), 0));
    Ok(Box::new(OneFile { writer, mode, path }))
}

impl OneFile {
    fn write(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (writer, len) = &mut *writer;
        if self.mode == Mode::WriteAt {
            let parts = [
                &(key.len() as u32).to_le_bytes()[..],
                key,
                &(value.len() as u32).to_le_bytes(),
                value,
            ];
            let record = parts.concat();
            writer.get_ref().write_all_at(&record, *len)?;
            *len += record.len() as u64;
            return Ok(());
        }
        writer.write_all(&(key.len() as u32).to_le_bytes())?;
        writer.write_all(key)?;
        writer.write_all(&(value.len() as u32).to_le_bytes())?;
        writer.write_all(value)?;
        if self.mode != Mode::Buffered {
            // The buffer only puts the record together.
            writer.flush()?;
        }
        match self.mode {
            Mode::DataSync => writer.get_ref().sync_data(),
            _ => Ok(()),
        }
    }

    fn finish(&self) -> io::Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = &mut writer.0;
        writer.flush()?;
        match self.mode {
            Mode::SyncAtEnd => writer.get_ref().sync_all(),
            _ => Ok(()),
        }
    }
}

impl System for OneFile {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(key, value).map_err(|error| Failure::io("write to", &self.path, &error))
    }

    fn delete(&self, _key: &[u8]) -> Result<()> {
        cannot("file", "delete")
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        cannot("file", "read")
    }

    fn settle(&self) -> Result<()> {
        self.finish().map_err(|error| Failure::io("write to", &self.path, &error))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.settle()
    }
}
