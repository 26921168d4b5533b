//! The write path of the study, written anew from its description: a table in a mutex takes records until their keys and
//! values reach a size, then goes through a bounded queue to a thread that writes it to a file with a buffer of 8 KiB and
//! without a sync. A full queue stalls the writer. Records are vectors of their own; there is no arena.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::{Reader, System, cannot};
use crate::failure::{Failure, Result};

/// A record as the study keeps it.
#[derive(Clone)]
pub(super) struct LogEntry {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// What takes records before they are written.
pub(super) trait Table: Default + Send + 'static {
    const NAME: &'static str;

    fn put(&mut self, entry: LogEntry);

    /// The records in the order in which they are written.
    fn entries(self) -> Vec<LogEntry>;
}

/// How many tables wait to be written at most: `max_write_buffer_number`.
const QUEUE: usize = 2;

/// The table that takes records, and the bytes of their keys and values.
#[derive(Default)]
struct Active<T> {
    table: T,
    bytes: u64,
}

pub(super) struct WritePath<T> {
    active: Mutex<Active<T>>,
    threshold: u64,
    sender: SyncSender<T>,
    flusher: JoinHandle<io::Result<()>>,
    path: PathBuf,
}

impl<T: Table> WritePath<T> {
    pub(super) fn open(path: &Path, threshold: u64) -> Self {
        let (sender, receiver) = mpsc::sync_channel(QUEUE);
        let directory = path.to_path_buf();
        let flusher = thread::spawn(move || flush(&receiver, &directory));
        let path = path.to_path_buf();
        Self { active: Mutex::default(), threshold, sender, flusher, path }
    }

    fn send(&self, table: T) -> Result<()> {
        let gone = |_| Failure::other(format!("{}: the thread that writes files is gone", T::NAME));
        self.sender.send(table).map_err(gone)
    }
}

/// Writes each table that comes to a file of its own.
fn flush<T: Table>(tables: &Receiver<T>, directory: &Path) -> io::Result<()> {
    for (number, table) in tables.iter().enumerate() {
        let file = File::create(directory.join(format!("{number:06}.sst")))?;
        let mut writer = BufWriter::new(file);
        for LogEntry { key, value } in table.entries() {
            for bytes in [key, value] {
                writer.write_all(&(bytes.len() as u32).to_le_bytes())?;
                writer.write_all(&bytes)?;
            }
        }
        writer.flush()?;
    }
    Ok(())
}

impl<T: Table> System for WritePath<T> {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let entry = LogEntry { key: key.to_vec(), value: value.to_vec() };
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.bytes += (key.len() + value.len()) as u64;
        active.table.put(entry);
        if active.bytes >= self.threshold {
            let full = std::mem::take(&mut *active);
            // Under the lock, as in the study: a full queue stalls all writers.
            self.send(full.table)?;
        }
        Ok(())
    }

    fn delete(&self, _key: &[u8]) -> Result<()> {
        cannot(T::NAME, "delete")
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        cannot(T::NAME, "read")
    }

    /// Writes what is left, and waits for the thread.
    fn close(self: Box<Self>) -> Result<()> {
        let Self { active, sender, flusher, path, .. } = *self;
        let active = active.into_inner().unwrap_or_else(PoisonError::into_inner);
        // If the thread is gone, joining it says why.
        let _ = sender.send(active.table);
        drop(sender);
        let ended =
            flusher.join().map_err(|_| Failure::other("the thread that writes files panicked"))?;
        ended.map_err(|error| Failure::io("write a file in", &path, &error))
    }
}
