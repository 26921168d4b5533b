//! Walking over a sorted file in key order, both ways.
//!
//! The cursor has one block. Who walks from block to block reads the next ones with it, past the cache. Whatever links say, a walk
//! comes to each record once at most: the records of a block are counted behind those of the block in front.

use std::ops::Range;
use std::sync::Arc;

use super::block::{Block, Damage, Place};
use super::file::{LastLinks, SortedFile};
use super::links::Target;
use crate::base::{Slice, Trailer, View};
use crate::error::Result;
use crate::iter::{EntryCursor, OrderedCursor};

/// The first run that is read ahead, and the longest, in bytes, for those who did not ask for runs.
const FIRST_RUN: u64 = 16 << 10;
const LONGEST_RUN: u64 = 256 << 10;
/// So many steps in a row to the next block make a walk.
const WALK: isize = 2;

const NOT_COUNTED: Damage = Damage("records are not counted from block to block");

/// A position in a sorted file.
pub(super) struct FileCursor {
    file: Arc<SortedFile>,
    block: Option<Loaded>,
    place: Place,
    key: Vec<u8>,
    /// How much of the key is the block's prefix.
    prefix: usize,
    trailer: Trailer,
    value: Range<usize>,
    next: Place,
    is_valid: bool,
    links: LastLinks,
    ahead: Ahead,
}

/// The block that a cursor is in.
struct Loaded {
    number: usize,
    target: Target,
    bytes: View,
}

/// What was read at once.
struct Ahead {
    run: Option<(u64, View)>,
    /// Steps in a row to the block behind (positive) or in front (negative).
    streak: isize,
    bytes: u64,
    /// Whether runs are read from the first block on.
    always: bool,
}

impl FileCursor {
    pub(super) fn new(file: Arc<SortedFile>, run: Option<u64>) -> Self {
        let ahead =
            Ahead { run: None, streak: 0, bytes: run.unwrap_or(FIRST_RUN), always: run.is_some() };
        Self {
            file,
            block: None,
            place: Place::default(),
            key: Vec::new(),
            prefix: 0,
            trailer: Trailer::OLDEST,
            value: 0..0,
            next: Place::default(),
            is_valid: false,
            links: LastLinks::default(),
            ahead,
        }
    }

    /// Moves to record `record`; outside if there is none.
    pub(super) fn seek_to_record(&mut self, record: u64) -> Result<()> {
        self.is_valid = false;
        if record >= self.file.footer.records {
            return Ok(());
        }
        let (number, target) = self.file.find_record(record)?;
        self.load(number, target)?;
        let index = (record - target.record) as usize;
        let block = self.block()?;
        let (place, is_there) =
            (self.file.damage(block.place(index), &target)?, index < block.len());
        match is_there {
            true => self.stand(place),
            false => {
                Err(self.file.damaged(Damage("a block has fewer records than it should"), &target))
            }
        }
    }

    fn load(&mut self, number: usize, target: Target) -> Result<()> {
        let step = self.block.as_ref().map_or(0, |block| number as isize - block.number as isize);
        self.block = None;
        self.is_valid = false;
        let bytes = self.read(number, &target, step)?;
        let block = self.file.parse(&bytes, target.offset)?;
        if block.len() == 0 {
            return Err(self.file.damaged(Damage("a block has no records"), &target));
        }
        if target.record.saturating_add(block.len() as u64) > self.file.footer.records {
            return Err(self
                .file
                .damaged(Damage("there are more records than there should be"), &target));
        }
        self.key.clear();
        self.key.extend_from_slice(block.prefix);
        self.prefix = block.prefix.len();
        self.block = Some(Loaded { number, target, bytes });
        Ok(())
    }

    /// The bytes of a block that is `step` blocks behind the last one.
    fn read(&mut self, number: usize, target: &Target, step: isize) -> Result<View> {
        if self.file.lends() {
            let view = self.file.block(number, target)?.into_view();
            if self.ahead.always {
                // What is read gets into another file, with a new checksum: what the bytes became since they were checked first
                // would count as right from then on.
                self.file.check(&view, target.offset)?;
            }
            return Ok(view);
        }
        let ahead = &mut self.ahead;
        ahead.streak = match step {
            1 => ahead.streak.max(0) + 1,
            -1 => ahead.streak.min(0) - 1,
            _ => 0,
        };
        if !ahead.always && ahead.streak.abs() < WALK {
            ahead.run = None;
            ahead.bytes = FIRST_RUN;
            return Ok(self.file.block(number, target)?.into_view());
        }
        if let Some(view) = ahead.held(target) {
            self.file.check(&view, target.offset)?;
            return Ok(view);
        }
        if let Some(view) = self.file.peek(number) {
            return Ok(view);
        }
        // Behind the last block there are only links.
        let end = self.file.footer.top;
        let range = match ahead.streak < 0 {
            true => {
                let end = target.range().end;
                end.saturating_sub(ahead.bytes).min(target.offset)..end
            }
            false => {
                let behind = target.offset.saturating_add(ahead.bytes).min(end);
                target.offset..behind.max(target.range().end)
            }
        };
        let start = range.start;
        ahead.run = Some((start, self.file.view(range)?));
        if !ahead.always {
            ahead.bytes = (2 * ahead.bytes).min(LONGEST_RUN);
        }
        let view = ahead.held(target);
        let view =
            view.ok_or_else(|| self.file.damaged(Damage("a link leads to no block"), target))?;
        self.file.check(&view, target.offset)?;
        Ok(view)
    }

    #[inline]
    fn block(&self) -> Result<Block<'_>> {
        let block = self.block.as_ref().expect("a block was loaded");
        self.file.parse(&block.bytes, block.target.offset)
    }

    /// Stands on the record at `place` of the block, which must not be its end.
    #[inline]
    fn stand(&mut self, place: Place) -> Result<()> {
        let loaded = self.block.as_ref().expect("a block was loaded");
        let block = self.file.parse(&loaded.bytes, loaded.target.offset)?;
        let record = self.file.damage(block.record(place), &loaded.target)?;
        self.key.truncate(self.prefix);
        self.key.extend_from_slice(record.suffix);
        (self.trailer, self.value) = (record.trailer, record.value());
        (self.place, self.next) = (place, record.next);
        self.is_valid = true;
        Ok(())
    }

    /// Stands on the record at `place`, or on the first one of the block behind if that is the end.
    #[inline]
    fn settle_forward(&mut self, place: Place) -> Result<()> {
        self.is_valid = false;
        let Some(loaded) = &self.block else { return Ok(()) };
        let len = self.file.parse(&loaded.bytes, loaded.target.offset)?.len();
        if place.index < len {
            return self.stand(place);
        }
        let number = loaded.number + 1;
        if number >= self.file.blocks() {
            return Ok(());
        }
        let end = loaded.target.record + len as u64;
        let target = self.file.target_of(number, &mut self.links)?;
        if target.record != end {
            return Err(self.file.damaged(NOT_COUNTED, &target));
        }
        self.load(number, target)?;
        self.stand(Place::default())
    }

    /// Stands on the record in front of `place`, or on the last one of the block in front if there is none.
    fn settle_backward(&mut self, place: Place) -> Result<()> {
        self.is_valid = false;
        let Some(loaded) = &self.block else { return Ok(()) };
        let (number, target) = (loaded.number, loaded.target);
        if let Some(index) = place.index.checked_sub(1) {
            let place = self.file.damage(self.block()?.place(index), &target)?;
            return self.stand(place);
        }
        let Some(number) = number.checked_sub(1) else { return Ok(()) };
        let begin = target.record;
        let target = self.file.target_of(number, &mut self.links)?;
        self.load(number, target)?;
        let block = self.block()?;
        if target.record + block.len() as u64 != begin {
            return Err(self.file.damaged(NOT_COUNTED, &target));
        }
        let place = self.file.damage(block.place(block.len() - 1), &target)?;
        self.stand(place)
    }

    /// The place of the first record that is not before `(key, trailer)` in the block where that would be; false if there
    /// are no blocks.
    fn bound(&mut self, key: &[u8], trailer: Trailer) -> Result<Option<Place>> {
        self.is_valid = false;
        let Some((number, target)) = self.file.find(key, trailer)? else { return Ok(None) };
        self.load(number, target)?;
        self.file.damage(self.block()?.lower_bound(key, trailer), &target).map(Some)
    }
}

impl Ahead {
    /// The block at `target`, if it is in the run.
    fn held(&self, target: &Target) -> Option<View> {
        let (first, run) = self.run.as_ref()?;
        let start = usize::try_from(target.offset.checked_sub(*first)?).ok()?;
        let end = start.checked_add(target.len as usize)?;
        (end <= run.len()).then(|| run.slice(start..end))
    }
}

impl EntryCursor for FileCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.is_valid = false;
        if self.file.blocks() == 0 {
            return Ok(());
        }
        let target = self.file.target_of(0, &mut self.links)?;
        self.load(0, target)?;
        self.stand(Place::default())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.is_valid = false;
        let Some(number) = self.file.blocks().checked_sub(1) else { return Ok(()) };
        let target = self.file.target_of(number, &mut self.links)?;
        self.load(number, target)?;
        let block = self.block()?;
        let place = self.file.damage(block.place(block.len() - 1), &target)?;
        self.stand(place)
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        match self.bound(key, trailer)? {
            Some(place) => self.settle_forward(place),
            None => Ok(()),
        }
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        match self.bound(key, trailer)? {
            Some(place) => self.settle_backward(place),
            None => Ok(()),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.settle_forward(self.next)
    }

    fn prev(&mut self) -> Result<()> {
        self.settle_backward(self.place)
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.is_valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.trailer
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block.bytes[self.value.clone()])
    }

    fn value_slice(&self) -> Slice {
        match &self.block {
            Some(block) => Slice::of_view(&block.bytes, self.value.clone()),
            None => Slice::from(&[][..]),
        }
    }
}

/// All records of a file without trailers are visible to those who read it.
impl OrderedCursor for FileCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        EntryCursor::seek_to_first(self)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        EntryCursor::seek_to_last(self)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        EntryCursor::seek(self, key, Trailer::NEWEST)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        EntryCursor::seek_before(self, key, Trailer::NEWEST)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.is_valid { EntryCursor::next(self) } else { Ok(()) }
    }

    fn prev(&mut self) -> Result<()> {
        if self.is_valid { EntryCursor::prev(self) } else { Ok(()) }
    }

    fn is_valid(&self) -> bool {
        self.is_valid
    }

    fn key(&self) -> &[u8] {
        EntryCursor::key(self)
    }

    fn value(&self) -> &[u8] {
        EntryCursor::value(self)
    }

    fn value_slice(&self) -> Slice {
        EntryCursor::value_slice(self)
    }
}
