//! Many keys looked up at once.
//!
//! The keys go through the tables in rounds. In a round each key that is not decided names the next block it
//! has to look into, and where that is in memory the keys take turns at each step of the search, so that they
//! wait for memory together. The blocks that are not in memory are read with one batch, or a few if they are large, each once. A
//! key that its block does not decide goes on to the next round. At the end, values that are kept apart are read as one batch.
//!
//! Invariant: a key meets memtables, loads, tables and blocks in the order that [`State::get`] would, so that both
//! give the same.
//!
//! Thread safety: a state does not change; no lock is held over a read.

use std::sync::Arc;

use super::state::{State, live};
use super::table::{Found, Place, Table, unless_deleted};
use super::values::read_all;
use crate::base::{Seqno, Slice, View, hash};
use crate::error::Result;
use crate::vfs::BatchReader;

/// So many keys are looked up at once: enough to keep a device busy, and few enough that what was asked for
/// ahead is still in the processor's cache when it is needed.
const AT_ONCE: usize = 256;

/// A key that is not decided.
struct Search {
    /// Which of the keys it is.
    position: usize,
    hash: u64,
    /// The first place where it has not looked for a table.
    place: usize,
}

/// A key and the block it has to look into.
struct Probe {
    search: Search,
    table: Arc<Table>,
    place: Place,
    /// The newest range tombstone of the table that covers the key; 0 if there is none.
    deleted: Seqno,
}

/// Keys that are looked up together.
struct Lookups<'a> {
    state: &'a State,
    at: Seqno,
    /// The most bytes of blocks that are read with one batch, if one of them is not larger.
    most: u64,
    keys: &'a [&'a [u8]],
    answers: &'a mut [Option<Slice>],
    undecided: Vec<Search>,
    apart: Vec<Apart>,
}

/// A key that is decided, and whose value is apart.
struct Apart {
    position: usize,
    hash: u64,
    /// What leads to the value.
    reference: Slice,
}

impl State {
    /// What [`get`](Self::get) gives for each of the keys. One batch of reads brings in `most` bytes of blocks, or one block.
    pub(super) fn multi_get(
        &self,
        keys: &[&[u8]],
        at: Seqno,
        reader: &BatchReader,
        most: u64,
    ) -> Result<Vec<Option<Slice>>> {
        let mut answers = vec![None; keys.len()];
        for (keys, answers) in keys.chunks(AT_ONCE).zip(answers.chunks_mut(AT_ONCE)) {
            let undecided = Vec::with_capacity(keys.len());
            let apart = Vec::new();
            let mut lookups = Lookups { state: self, at, most, keys, answers, undecided, apart };
            lookups.in_front()?;
            while !lookups.undecided.is_empty() {
                lookups.round(reader)?;
            }
            lookups.read_values(reader)?;
        }
        Ok(answers)
    }
}

impl Lookups<'_> {
    fn in_front(&mut self) -> Result<()> {
        for (position, key) in self.keys.iter().enumerate() {
            match self.state.in_front(key, self.at)? {
                Some(found) => self.answers[position] = live(found),
                None => {
                    let hash = hash::hash64(key);
                    self.state.prefetch(key, hash);
                    self.undecided.push(Search { position, hash, place: 0 });
                }
            }
        }
        Ok(())
    }

    /// Looks into one more block for each key.
    fn round(&mut self, reader: &BatchReader) -> Result<()> {
        let mut probes = Vec::with_capacity(self.undecided.len());
        for search in std::mem::take(&mut self.undecided) {
            probes.extend(self.probe(search)?);
        }
        probes.iter().for_each(|probe| probe.table.prefetch_place(probe.place));
        let mut unread = Vec::new();
        for probe in probes {
            let key = self.keys[probe.search.position];
            match probe.table.try_find_at(probe.place, key, self.at)? {
                Some(found) => self.take(probe.search, probe.deleted, found),
                None => unread.push(probe),
            }
        }
        if unread.is_empty() { Ok(()) } else { self.read(unread, reader) }
    }

    /// The next block that may hold the key; `None` if no table is left, or a range tombstone says that it is deleted.
    #[inline]
    fn probe(&self, mut search: Search) -> Result<Option<Probe>> {
        let key = self.keys[search.position];
        for place in search.place..self.state.places().end {
            let Some(file) = self.state.table_at(place, key, self.at) else { continue };
            let found = file.read(|table| {
                let found = table.place_of(key, search.hash, self.at)?;
                let deleted = table.deleted(key, self.at);
                Ok((found.map(|found| (Arc::clone(table), found)), deleted))
            })?;
            let (found, deleted) = found;
            if let Some((table, found)) = found {
                table.prefetch_slot(found.block);
                search.place = place + 1;
                return Ok(Some(Probe { search, table, place: found, deleted }));
            }
            if deleted > 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Reads blocks that are not in memory, each once, and looks into them.
    fn read(&mut self, mut unread: Vec<Probe>, reader: &BatchReader) -> Result<()> {
        unread.sort_unstable_by_key(Probe::block);
        while !unread.is_empty() {
            let (mut requests, mut probes, mut bytes) = (Vec::new(), 0, 0);
            for same in unread.chunk_by(|a, b| a.block() == b.block()) {
                let request = same[0].table.request(same[0].place.block)?;
                bytes += request.range.end - request.range.start;
                if bytes > self.most && !requests.is_empty() {
                    break;
                }
                requests.push(request);
                probes += same.len();
            }
            let later = unread.split_off(probes);
            self.look_into(unread, reader.read(&requests))?;
            unread = later;
        }
        Ok(())
    }

    /// Looks into blocks that were read, in the order of those who need them.
    fn look_into(&mut self, unread: Vec<Probe>, read: Vec<Result<View>>) -> Result<()> {
        let (mut read, mut last) = (read.into_iter(), None);
        for probe in unread {
            let stored = match last.take() {
                Some((block, stored)) if block == probe.block() => stored,
                _ => {
                    let stored = read.next().expect("every request is answered")?;
                    probe.table.take_in(probe.place.block, &stored)?
                }
            };
            let key = self.keys[probe.search.position];
            let found = probe.table.find_in(&stored, probe.place, key, self.at)?;
            last = Some((probe.block(), stored));
            self.take(probe.search, probe.deleted, found);
        }
        Ok(())
    }

    /// Reads the values that are apart.
    fn read_values(&mut self, reader: &BatchReader) -> Result<()> {
        if self.apart.is_empty() {
            return Ok(());
        }
        let place = |apart: &Apart| Ok((self.state.place(&apart.reference)?, apart.hash));
        let places = self.apart.iter().map(place).collect::<Result<Vec<_>>>()?;
        for (apart, value) in self.apart.iter().zip(read_all(&places, reader)) {
            self.answers[apart.position] = Some(value?);
        }
        Ok(())
    }

    /// Takes note of what a block said of a key, and the range tombstones of its table.
    #[inline]
    fn take(&mut self, search: Search, deleted: Seqno, found: Found) {
        let Search { position, hash, .. } = search;
        match unless_deleted(found, deleted) {
            Some((trailer, reference)) if trailer.is_apart() => {
                self.apart.push(Apart { position, hash, reference });
            }
            Some(found) => self.answers[search.position] = live(found),
            None => self.undecided.push(search),
        }
    }
}

impl Probe {
    /// Which block it is about; blocks of a table are neighbours in this order.
    fn block(&self) -> (*const Table, usize) {
        (Arc::as_ptr(&self.table), self.place.block)
    }
}
