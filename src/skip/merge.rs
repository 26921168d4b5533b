//! Merging many sorted inputs into one sorted file: with sequential reads and writes, and little memory.
//!
//! What is kept of a key's entries depends on what the file is for:
//! - A *run* has changes: the newest entry of a key, or all that a reducer may need, tombstones included.
//! - The *base* has one state of all keys, and no tombstones. Its records have no trailers, but where every value of a key is
//!   kept.
//! - An *exact* run has every entry: while there may be snapshots between them.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cursor::FileCursor;
use super::part::{Home, Part, PartMeta};
use super::reduce::Reduce;
use super::writer::{Shape, Writer};
use crate::base::{Kind, Seqno, Slice, Trailer};
use crate::error::{Error, Result};
use crate::iter::{Either, EntryCursor, LoserTree};
use crate::memtable::MemtableCursor;
use crate::planted::{Bug, planted};
use crate::throttle::Valve;

/// An input of a merge.
pub(super) type Input = Either<MemtableCursor, FileCursor>;

/// The bytes that each input reads at once, and the output writes, if there is memory for it.
const MOST_AT_ONCE: usize = 1 << 20;
const LEAST_AT_ONCE: usize = 16 << 10;
/// The share of the memory budget that the buffers of a merge may take together.
const SHARE: usize = 16;
/// So many values of a key are gathered before one is made of them, if that is as small as each of them.
const MOST_OPERANDS: usize = 1024;
/// After so many entries it is looked whether to stop, and after so many bytes.
const BETWEEN_LOOKS: u64 = 1024;
const BYTES_BETWEEN_LOOKS: u64 = 4 << 20;

/// What is made of the entries of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Every entry is kept.
    ExactRun,
    Run,
    Base,
}

/// How far a merge has come, in bytes of keys and values.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) done: AtomicU64,
    pub(super) total: AtomicU64,
}

/// What a merge is to write.
pub(super) struct Order<'a> {
    pub(super) home: &'a Arc<Home>,
    pub(super) reduce: &'a Reduce,
    pub(super) purpose: Purpose,
    pub(super) shape: Shape,
    pub(super) id: u64,
    /// The output has writes above `after`, and all up to `to`.
    pub(super) after: Seqno,
    pub(super) to: Seqno,
    pub(super) progress: Option<&'a Progress>,
    /// What its writes wait for.
    pub(super) valve: Option<&'a Arc<Valve>>,
    pub(super) stopped: &'a dyn Fn() -> bool,
}

/// How many bytes each of `inputs` inputs, and the output, may read or write at once.
pub(super) fn at_once(budget: usize, inputs: usize) -> usize {
    (budget / SHARE / (inputs + 1)).clamp(LEAST_AT_ONCE, MOST_AT_ONCE)
}

impl Order<'_> {
    fn shape(&self) -> Shape {
        let has_trailers = self.purpose != Purpose::Base || self.reduce.keeps_all();
        Shape { has_trailers, ..self.shape }
    }

    /// Merges `inputs`, newest first, into a new file. Gives it, or `None` if nothing was left. If it fails, or is told to
    /// stop, which is the error `Closed`, no file stays behind.
    pub(super) fn carry_out(&self, mut inputs: Vec<Input>) -> Result<Option<Arc<Part>>> {
        let buffer = at_once(self.home.budget.total, inputs.len());
        inputs.iter_mut().try_for_each(EntryCursor::seek_to_first)?;
        let tree = LoserTree::new(inputs);
        let made = self.write(tree, buffer);
        if let Ok(Some(part)) = made {
            return Ok(Some(part));
        }
        // What is there has not been named anywhere.
        let path = self.home.path(self.id);
        if let Err(error) = self.home.fs.remove(&path)
            && made.is_ok()
        {
            return Err(error);
        }
        made
    }

    fn write(&self, mut tree: LoserTree<Input>, buffer: usize) -> Result<Option<Arc<Part>>> {
        let file = Valve::over_if(self.valve, self.home.create(self.id, self.home.layer())?);
        let identity = self.home.identity_of(self.id);
        let mut writer = Writer::new(file, identity, self.shape(), buffer);
        let mut filter = Filter::new(self);
        let mut looks = 0_u64;
        let (mut done, mut look_at) = (0_u64, BYTES_BETWEEN_LOOKS);
        while tree.is_valid() {
            looks += 1;
            done += (tree.key().len() + tree.value().len()) as u64;
            if looks.is_multiple_of(BETWEEN_LOOKS) || done >= look_at {
                look_at = done + BYTES_BETWEEN_LOOKS;
                if (self.stopped)() {
                    return Err(Error::Closed);
                }
                if let Some(progress) = self.progress {
                    progress.done.store(done, Relaxed);
                }
            }
            filter.take(&tree, &mut writer)?;
            tree.next()?;
        }
        filter.end(&mut writer)?;
        if writer.records() == 0 {
            return Ok(None);
        }
        let (file, len, footer) = writer.finish()?;
        drop(file);
        self.home.fs.sync_dir(&self.home.dir)?;
        let is_base = self.purpose == Purpose::Base;
        let (id, records) = (self.id, footer.records);
        let meta = PartMeta { id, len, records, is_base, after: self.after, to: self.to };
        Part::open(meta, self.home).map(Some)
    }
}

/// Decides which entries go on.
struct Filter<'a> {
    order: &'a Order<'a>,
    only_newest: bool,
    reduces: bool,
    /// The key that the last entry has, if there was one.
    key: Vec<u8>,
    is_first: bool,
    /// Whether older entries of the key do not count.
    is_decided: bool,
    /// Values of the key, newest first.
    operands: Vec<Slice>,
    /// What a record of a base counts as.
    uniform: Trailer,
}

impl<'a> Filter<'a> {
    fn new(order: &'a Order<'a>) -> Self {
        let reduce = order.reduce;
        let is_base = order.purpose == Purpose::Base;
        Self {
            only_newest: reduce.only_newest(),
            reduces: is_base && !reduce.only_newest() && !reduce.keeps_all(),
            order,
            key: Vec::new(),
            is_first: true,
            is_decided: false,
            operands: Vec::new(),
            uniform: Trailer::new(order.to, Kind::Put),
        }
    }

    /// Takes the entry in front.
    #[inline]
    fn take(&mut self, tree: &LoserTree<Input>, writer: &mut Writer) -> Result<()> {
        let (key, trailer) = (tree.key(), tree.trailer());
        if self.order.purpose == Purpose::ExactRun {
            return writer.push(key, trailer, tree.value());
        }
        match if self.is_first { Ordering::Less } else { self.key.as_slice().cmp(key) } {
            Ordering::Less => {
                self.end(writer)?;
                self.is_first = false;
                self.is_decided = false;
                self.key.clear();
                self.key.extend_from_slice(key);
            }
            Ordering::Equal if self.is_decided => return Ok(()),
            Ordering::Equal => {}
            Ordering::Greater => {
                let what = "records of a sorted file are out of order";
                return Err(Error::corruption(&self.order.home.dir, 0, what));
            }
        }
        let is_put = trailer.kind() == Kind::Put;
        self.is_decided = self.only_newest || !is_put;
        if planted(Bug::RunLosesDeletes) && !is_put {
            return Ok(());
        }
        if self.order.purpose == Purpose::Run {
            return writer.push(key, trailer, tree.value());
        }
        match (is_put, self.reduces) {
            (false, _) => Ok(()),
            (true, true) => {
                // Values may be large: those that do not count must not wait for the end of the key.
                if self.order.reduce.only_oldest() {
                    self.operands.clear();
                }
                self.operands.push(tree.value_slice());
                self.fold()
            }
            (true, false) => writer.push(key, trailer, tree.value()),
        }
    }

    /// Makes one of many small values: a key may have more of them than there is memory.
    #[inline]
    fn fold(&mut self) -> Result<()> {
        let reduce = self.order.reduce;
        if self.operands.len() >= MOST_OPERANDS && reduce.folds() {
            self.operands.reverse();
            self.operands = reduce.reduce(&self.key, std::mem::take(&mut self.operands))?;
        }
        Ok(())
    }

    /// Writes what the values that were gathered become.
    #[inline]
    fn end(&mut self, writer: &mut Writer) -> Result<()> {
        if self.operands.is_empty() {
            return Ok(());
        }
        let mut operands = std::mem::take(&mut self.operands);
        operands.reverse();
        for value in self.order.reduce.reduce(&self.key, operands)? {
            writer.push(&self.key, self.uniform, &value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtables;
    use crate::options::{MIN_MEMORY_BUDGET, MemtableKind};
    use crate::reducer::Reducer;
    use crate::skip::tests::rig;
    use crate::vfs::{Fs, MemoryFs};

    /// What is held while a base is made of a key with so many values, at most.
    fn most_held(reducer: Reducer, count: u64, value: &[u8]) -> usize {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let home = rig::home(&fs);
        let reduce = Reduce::new(reducer, None, &home.dir);
        let order = Order {
            home: &home,
            reduce: &reduce,
            purpose: Purpose::Base,
            shape: Shape { step_unit: 4, max_level: 12, has_trailers: true },
            id: 1,
            after: 0,
            to: count,
            progress: None,
            valve: None,
            stopped: &|| false,
        };
        let memtables = Memtables::new(MemtableKind::default(), &home.budget);
        for seqno in 1..=count {
            memtables.active.insert(b"key", Trailer::new(seqno, Kind::Put), value);
        }
        let mut inputs: Vec<_> = memtables.cursors().map(Input::Left).collect();
        inputs.iter_mut().try_for_each(EntryCursor::seek_to_first).unwrap();
        let mut tree = LoserTree::new(inputs);
        let mut writer =
            Writer::new(home.create(1, home.layer()).unwrap(), 1, order.shape(), 1 << 14);
        let (mut filter, mut most) = (Filter::new(&order), 0);
        while tree.is_valid() {
            filter.take(&tree, &mut writer).unwrap();
            most = most.max(filter.operands.iter().map(|value| value.len()).sum());
            tree.next().unwrap();
        }
        filter.end(&mut writer).unwrap();
        assert_eq!(writer.records(), 1);
        most
    }

    #[test]
    fn a_merge_of_large_values_is_asked_to_stop_as_often_as_one_of_many() {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let home = rig::home(&fs);
        fs.create_dir(&home.dir).unwrap();
        let reduce = Reduce::new(Reducer::Last, None, &home.dir);
        let looks = std::cell::Cell::new(0);
        let order = Order {
            home: &home,
            reduce: &reduce,
            purpose: Purpose::Run,
            shape: Shape { step_unit: 4, max_level: 12, has_trailers: true },
            id: 1,
            after: 0,
            to: 16,
            progress: None,
            valve: None,
            stopped: &|| {
                looks.set(looks.get() + 1);
                false
            },
        };
        let memtables = Memtables::new(MemtableKind::default(), &home.budget);
        for seqno in 1..=16 {
            let trailer = Trailer::new(seqno, Kind::Put);
            memtables.active.insert(&seqno.to_be_bytes(), trailer, &[1; 1 << 20]);
        }
        let inputs = memtables.cursors().map(Input::Left).collect();
        assert!(order.carry_out(inputs).unwrap().is_some());
        assert!((3..=4).contains(&looks.get()), "{}", looks.get());
    }

    #[test]
    fn what_of_a_key_does_not_count_takes_no_memory() {
        let value = vec![1; MIN_MEMORY_BUDGET / 64];
        assert!(most_held(Reducer::First, 50, &value) <= value.len());
        let (count, all) = (3 * MOST_OPERANDS as u64, 8 * MOST_OPERANDS);
        assert!(most_held(Reducer::Sum, count, &[0; 8]) <= all);
    }
}
