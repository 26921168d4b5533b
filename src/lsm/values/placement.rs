//! Where a flush or a compaction puts the value of each entry it writes:
//!
//! 1. A value that comes with its key and is long enough goes to a new value file.
//! 2. One that is apart stays where it is, and its table refers to it, unless its file is one that values are moved out of:
//!    then it goes to a new value file, too.
//! 3. One that is apart, but not long enough any more, because the options have changed, goes back to its key.
//!
//! New files are ended near their target size and synced at once. If the tables do not come about, the new files are
//! removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::collection::Moves;
use super::file::ValueFile;
use super::set::{Place, Share, ValueFiles};
use super::writer::ValueWriter;
use crate::base::{Slice, Trailer, hash};
use crate::error::{Error, Result};
use crate::lsm::version::Home;
use crate::throttle::Valve;
use crate::vfs::Hint;

/// So much of a file is announced that values are moved out of, in order.
const AHEAD: u64 = 1 << 20;

/// Puts values in their places.
pub(crate) struct Placement<'a> {
    home: &'a Arc<Home>,
    /// The files that references lead to.
    sources: &'a ValueFiles,
    /// Values of so many bytes are kept apart.
    shortest: usize,
    /// The numbers of files that values are moved out of.
    moved: BTreeSet<u64>,
    /// A value file is ended when it has about this many bytes.
    file_bytes: u64,
    /// What the writes of upkeep wait for.
    valve: Option<&'a Arc<Valve>>,
    current: Option<ValueWriter>,
    finished: Vec<Arc<ValueFile>>,
    /// The numbers of all files that were begun.
    begun: Vec<u64>,
    /// What the table being written refers to: bytes of records by the number of their file.
    shares: BTreeMap<u64, u64>,
    /// The reference that stands for the last value, or the value that stands for a reference.
    reference: Vec<u8>,
    value: Slice,
    /// How far each file that values are moved out of was announced.
    announced: BTreeMap<u64, u64>,
    /// The bytes of values that were moved since that was asked last.
    moved_bytes: usize,
}

impl<'a> Placement<'a> {
    /// Keeps values of `shortest` bytes apart, if that is asked for, in files of about `file_bytes`. References lead into
    /// `sources`.
    pub(crate) fn new(
        home: &'a Arc<Home>,
        sources: &'a ValueFiles,
        moves: Moves,
        shortest: Option<u32>,
        file_bytes: u64,
    ) -> Self {
        Self {
            home,
            sources,
            shortest: shortest.map_or(usize::MAX, |bytes| bytes as usize),
            moved: moves.files(sources),
            file_bytes,
            valve: None,
            current: None,
            finished: Vec::new(),
            begun: Vec::new(),
            shares: BTreeMap::new(),
            reference: Vec::new(),
            value: Slice::from(&[][..]),
            announced: BTreeMap::new(),
            moved_bytes: 0,
        }
    }

    /// Values that come with their keys stay there if they are shorter than this.
    pub(crate) fn shortest(&self) -> usize {
        self.shortest
    }

    /// The bytes of values that came out of other value files since this was last asked.
    #[inline]
    pub(crate) fn take_moved(&mut self) -> usize {
        std::mem::take(&mut self.moved_bytes)
    }

    /// With writes that wait for `valve`.
    pub(crate) fn through(self, valve: Option<&'a Arc<Valve>>) -> Self {
        Self { valve, ..self }
    }

    /// What a table is to have of an entry. `next_id` gives a new value file its number.
    #[inline]
    pub(crate) fn place<'b>(
        &'b mut self,
        key: &[u8],
        trailer: Trailer,
        value: &'b [u8],
        next_id: &mut dyn FnMut() -> u64,
    ) -> Result<(Trailer, &'b [u8])> {
        if trailer.is_apart() {
            return self.place_again(key, trailer, value, next_id);
        }
        if value.len() < self.shortest {
            return Ok((trailer, value));
        }
        self.append(key, value, next_id)?;
        Ok((trailer.apart(), &self.reference[..]))
    }

    /// Places a value that is apart already.
    fn place_again<'b>(
        &'b mut self,
        key: &[u8],
        trailer: Trailer,
        reference: &'b [u8],
        next_id: &mut dyn FnMut() -> u64,
    ) -> Result<(Trailer, &'b [u8])> {
        let sources: &'a ValueFiles = self.sources;
        let Some(place) = sources.locate(reference) else {
            let what = "a table refers to a value in a file that is not there";
            return Err(Error::corruption(&self.home.dir, 0, what));
        };
        let is_long = place.reference.len as usize >= self.shortest;
        if is_long && !self.moved.contains(&place.file.id) {
            let share = self.shares.entry(place.file.id).or_default();
            *share += place.record_len();
            if *share > place.file.record_bytes() {
                let what = "a table refers to more of a value file than there is";
                return Err(Error::corruption(&place.file.path(), 0, what));
            }
            return Ok((trailer, reference));
        }
        self.announce(&place)?;
        let value = place.read(hash::hash64(key))?;
        self.moved_bytes += value.len();
        if is_long {
            self.append(key, &value, next_id)?;
            return Ok((trailer, &self.reference[..]));
        }
        self.value = value;
        Ok((trailer.together(), &self.value[..]))
    }

    /// Tells of what is behind a value that is going to be read: its neighbours are likely to be next.
    fn announce(&mut self, place: &Place<'_>) -> Result<()> {
        let announced = self.announced.entry(place.file.id).or_default();
        let start = place.reference.offset;
        let end = place.file.len.min(start.saturating_add(AHEAD));
        if start < *announced {
            return Ok(());
        }
        *announced = end;
        place.file.read(|open| {
            open.file.advise(start..end, Hint::WillNeed);
            Ok(())
        })
    }

    /// Appends a value to the current new file, and puts what leads to it into `self.reference`.
    fn append(&mut self, key: &[u8], value: &[u8], next_id: &mut dyn FnMut() -> u64) -> Result<()> {
        let writer = match &mut self.current {
            Some(writer) => writer,
            None => {
                let id = next_id();
                let writer = ValueWriter::create(self.home, id, self.valve)?;
                self.begun.push(id);
                self.current.insert(writer)
            }
        };
        let reference = writer.append(key, value)?;
        reference.encode_into(&mut self.reference);
        *self.shares.entry(reference.file).or_default() += reference.record_len();
        if writer.len() >= self.file_bytes { self.finish_file() } else { Ok(()) }
    }

    fn finish_file(&mut self) -> Result<()> {
        if let Some(writer) = self.current.take() {
            self.finished.push(writer.finish(self.home)?);
        }
        Ok(())
    }

    /// What the table that ends here refers to, by the numbers of files; for [`shares_of`](Self::shares_of).
    pub(crate) fn end_table(&mut self) -> BTreeMap<u64, u64> {
        std::mem::take(&mut self.shares)
    }

    /// Completes and syncs the last new file. Its name is safe only when the directory has been synced.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.finish_file()
    }

    /// What a table refers to; called when all is [finished](Self::finish).
    pub(crate) fn shares_of(&self, table: BTreeMap<u64, u64>) -> Vec<Share> {
        let file = |id| {
            let new = self.finished.iter().find(|file| file.id == id);
            Arc::clone(new.or_else(|| self.sources.file(id)).expect("it was located or written"))
        };
        table.into_iter().map(|(id, bytes)| Share { file: file(id), bytes }).collect()
    }

    /// Removes what was written.
    pub(crate) fn abandon(&mut self) {
        self.current = None;
        self.finished.clear();
        for id in self.begun.drain(..) {
            if let Err(error) = self.home.fs.remove(&self.home.values_path(id)) {
                log::warn!("a half-made value file stays behind until the next opening: {error}");
            }
        }
    }
}
