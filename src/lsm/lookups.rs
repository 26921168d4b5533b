//! Many keys looked up at once.
//!
//! The keys go through the tables in rounds. In a round each key that is not decided names the next block it
//! has to look into, and where that is in memory the keys take turns at each step of the search, so that they
//! wait for memory together. The blocks that are not in memory are read with one batch, each once. A key that
//! its block does not decide goes on to the next round.
//!
//! Invariant: a key meets memtables, tables and blocks in the order that [`State::get`] would, so that both
//! give the same.
//!
//! Thread safety: a state does not change; no lock is held over a read.

use std::sync::Arc;

use super::state::{State, live};
use super::table::{Found, Table};
use super::version::TableFile;
use crate::base::{Seqno, Slice, hash};
use crate::error::Result;
use crate::vfs::BatchReader;

/// So many keys are looked up at once: enough to keep a device busy, and few enough that what was asked for
/// ahead is still in the processor's cache when it is needed.
const AT_ONCE: usize = 256;

/// A key that is not decided, and the tables that it has not met.
struct Search<'a, T> {
    key: &'a [u8],
    hash: u64,
    /// Where its answer goes.
    position: usize,
    tables: T,
}

/// A key and the block it has to look into.
struct Probe<'a, T> {
    search: Search<'a, T>,
    table: Arc<Table>,
    block: usize,
}

/// What is known at the moment of a round.
struct Round<'a, 'b, T> {
    at: Seqno,
    answers: &'b mut [Option<Slice>],
    /// Keys that go on to the next round.
    undecided: Vec<Search<'a, T>>,
}

impl State {
    /// What [`get`](Self::get) gives for each of the keys.
    pub(super) fn multi_get(
        &self,
        keys: &[&[u8]],
        at: Seqno,
        reader: &BatchReader,
    ) -> Result<Vec<Option<Slice>>> {
        let mut answers = vec![None; keys.len()];
        for (keys, answers) in keys.chunks(AT_ONCE).zip(answers.chunks_mut(AT_ONCE)) {
            self.get_all(keys, at, reader, answers)?;
        }
        Ok(answers)
    }

    fn get_all(
        &self,
        keys: &[&[u8]],
        at: Seqno,
        reader: &BatchReader,
        answers: &mut [Option<Slice>],
    ) -> Result<()> {
        let mut undecided = Vec::with_capacity(keys.len());
        for (position, &key) in keys.iter().enumerate() {
            match self.in_memtables(key, at) {
                Some(found) => answers[position] = live(found),
                None => {
                    let (hash, tables) = (hash::hash64(key), self.tables_for(key));
                    tables.clone().for_each(|table| table.prefetch(hash));
                    undecided.push(Search { key, hash, position, tables });
                }
            }
        }
        let mut round = Round { at, answers, undecided };
        while !round.undecided.is_empty() {
            round.run(reader)?;
        }
        Ok(())
    }
}

impl<'a, T: Iterator<Item = &'a Arc<TableFile>>> Search<'a, T> {
    /// The next block that may hold the key; `None` if no table is left.
    fn next_probe(mut self, at: Seqno) -> Result<Option<Probe<'a, T>>> {
        for file in self.tables.by_ref() {
            let found = file.read(|table| {
                let block = table.block_for(self.key, self.hash, at);
                Ok(block.map(|block| (Arc::clone(table), block)))
            })?;
            if let Some((table, block)) = found {
                table.prefetch_slot(block);
                return Ok(Some(Probe { search: self, table, block }));
            }
        }
        Ok(None)
    }
}

impl<T> Probe<'_, T> {
    /// Which block it is about; blocks of a table are neighbours in this order.
    fn place(&self) -> (*const Table, usize) {
        (Arc::as_ptr(&self.table), self.block)
    }
}

impl<'a, T: Iterator<Item = &'a Arc<TableFile>>> Round<'a, '_, T> {
    fn run(&mut self, reader: &BatchReader) -> Result<()> {
        let mut probes = Vec::with_capacity(self.undecided.len());
        for search in std::mem::take(&mut self.undecided) {
            probes.extend(search.next_probe(self.at)?);
        }
        probes.iter().for_each(|probe| probe.table.prefetch_block(probe.block));
        let mut unread = Vec::new();
        for probe in probes {
            match probe.table.find_in_memory(probe.block, probe.search.key, self.at)? {
                Some(found) => self.take(probe.search, found),
                None => unread.push(probe),
            }
        }
        if unread.is_empty() { Ok(()) } else { self.read(unread, reader) }
    }

    /// Reads the blocks that are not in memory, and looks into them.
    fn read(&mut self, mut unread: Vec<Probe<'a, T>>, reader: &BatchReader) -> Result<()> {
        unread.sort_unstable_by_key(Probe::place);
        let blocks = unread.chunk_by(|a, b| a.place() == b.place());
        let requests: Vec<_> = blocks.map(|same| same[0].table.request(same[0].block)).collect();
        let mut read = reader.read(&requests).into_iter();
        let mut last = None;
        for probe in unread {
            let stored = match last.take() {
                Some((place, stored)) if place == probe.place() => stored,
                _ => {
                    let stored = read.next().expect("every request is answered")?;
                    probe.table.take_in(probe.block, &stored)?;
                    stored
                }
            };
            let found = probe.table.find_in(&stored, probe.block, probe.search.key, self.at)?;
            last = Some((probe.place(), stored));
            self.take(probe.search, found);
        }
        Ok(())
    }

    /// Takes note of what a block said of a key.
    fn take(&mut self, search: Search<'a, T>, found: Found) {
        match found {
            Some(found) => self.answers[search.position] = live(found),
            None => self.undecided.push(search),
        }
    }
}
