//! Upkeep: finding out which records are dead, giving back their space, and checkpoints of the index. One piece of work
//! at a time, in the background or in a caller's thread.
//!
//! - *Resolving* a segment: where the index has several records with the hash of one of its records, their keys are
//!   read, at depth, and older versions that nobody sees are taken out of the index.
//! - *Reclaiming* a segment: the records that are still indexed are moved to the tail, and the segment is removed
//!   once all that was written until then is in files. Short segments are moved together, and become one. Never more than what
//!   a segment holds is there twice.
//! - A *tombstone* is forgotten when no older version of its key is indexed, and when the checkpoint that is loaded at
//!   the next opening was begun after that was seen: no older version can come back then.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::checkpoint::{self, Checkpoint, CheckpointWriter};
use super::index::{Entry, Found as Candidates};
use super::manifest::{Edit, Manifest};
use super::record::UNIT;
use super::segment::{
    Block, Found, Obstacle, Obstacles, Record, Records, SLOT_UNITS, Segment, size_of_entry,
};
use super::store::{A_MOMENT, Deferred, Store, lock};
use super::writer::{Put, Relocated};
use crate::base::hash::hash64;
use crate::base::{Kind, Seqno, Slice, View};
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::{Running, Work};
use crate::planted::{Bug, planted};
use crate::stats::VerifyReport;
use crate::sync::much;
use crate::throttle;

/// A segment is reclaimed when this share of it is dead,
const DEAD_SHARE: f64 = 0.5;
/// or when so much of all is dead, and at least so much of the segment.
const DEAD_SHARE_OF_ALL: f64 = 0.3;
const LEAST_DEAD_SHARE: f64 = 0.15;
/// So many segments shorter than an eighth of a full one are too many.
const MANY_SHORT: usize = 16;
/// How many keys are read together to find out whether they are the same, and what part of the budget that may take.
const PAIRS: usize = 256;
const SHARE_OF_PAIRS: usize = 32;
/// How many records are looked at ahead, so that the index's memory is there when it is read.
const AHEAD: usize = 32;
/// How many bytes of records are moved before upkeep looks whether it may go on as fast; the second is for simulations.
const MOVED: (u64, u64) = (256 << 10, 1 << 10);
/// How many entries are taken out of the index under one lock.
const FORGOTTEN: usize = 16;
/// How many buckets of the index are visited under one lock.
const BUCKETS: u64 = 64;
/// So many other pieces of work go before a checkpoint that is due.
const PASSED_OVER: u32 = 3;
/// For so many bytes of the budget a tombstone is remembered from one checkpoint to the next, in 16 bytes.
const BUDGET_PER_TOMBSTONE: usize = 1 << 9;
/// A checkpoint is due when this share of the index is tombstones that may be forgotten, or this one if the index is nearly full, but
/// not for less than half of what are remembered: it seals the tail.
const TOMBSTONES: u64 = 8;
const TOMBSTONES_OF_FULL: u64 = 16;
/// So many checkpoints find all that can be forgotten: the first one has the tail sealed, the second one sees it, the third one lets it
/// be forgotten.
const CHECKPOINTS_FOR_ROOM: u32 = 3;
/// The index, as a share of what it may be, from which on it is nearly full, and writers are slowed down if a checkpoint is due for
/// tombstones.
const FULL_INDEX: f64 = 0.75;
/// What an entry takes, about.
pub(super) const BYTES_PER_ENTRY: usize = 17;
/// Unresolved segments from which on writers are slowed down, and by how much for each.
const UNRESOLVED: usize = 4;
const PRESSURE_OF_UNRESOLVED: usize = 60;
/// Space, as a multiple of what is live, from which on writers are slowed down.
const SPACE: f64 = 2.0;
/// The most that upkeep slows writers down.
const MOST_PRESSURE: usize = 900;

/// What upkeep remembers.
#[derive(Default)]
pub(super) struct State {
    /// Tombstones that no older version was indexed with when the last checkpoint was written.
    seen: Tombstones,
    /// Those seen at the checkpoint before; they are forgotten once the last one has taken effect.
    waiting: Tombstones,
    /// The last checkpoint's number.
    checkpoint: u64,
    /// Tombstones that it found with older versions, or with other keys of the same hash, less those that these have left since.
    accompanied: u64,
    /// How many tombstones there were when it was written, and how many entries had been forgotten; and how many checkpoints
    /// have found nothing else.
    found: (u64, u64),
    found_again: u32,
    /// Whether the last piece of work was to be reclaiming, if that was due.
    reclaims: bool,
    /// How many pieces of work there were since the last checkpoint while the next one was due.
    passed_over: u32,
    /// The first damage that was met since somebody asked for all to be done, and the first of the present piece of work.
    damage: Option<Error>,
    new_damage: Option<Error>,
}

impl State {
    /// The bytes that tombstones take in it.
    pub(super) fn memory(&self) -> usize {
        (self.seen.entries.capacity() + self.waiting.entries.capacity()) * size_of::<(u64, Entry)>()
    }
}

/// Tombstones that a checkpoint found without older versions.
#[derive(Default)]
struct Tombstones {
    /// The last segment that the checkpoint covers, and so the last one they are in. A segment that has got the place of one of
    /// those was begun later.
    covers: u64,
    /// With their hashes.
    entries: Vec<(u64, Entry)>,
}

/// Two records whose keys may be the same.
struct Pair {
    hash: u64,
    entry: Entry,
    segment: Arc<Segment>,
    key: Slice,
    seqno: Seqno,
    other: Entry,
    other_segment: Arc<Segment>,
}

/// How many pairs are settled together, the last ones first, if what is read for them takes up to `most` bytes.
fn round_of(pairs: &[Pair], most: usize) -> usize {
    let mut bytes = 0;
    let fits = |pair: &&Pair| {
        // Those that the index does not know the length of are read one by one.
        bytes += pair.other.units_at_most().map_or(0, |units| units as usize * UNIT);
        bytes <= most
    };
    pairs.iter().rev().take(PAIRS).take_while(fits).count().max(1)
}

/// What came of work on a segment; of two outcomes of different kinds the greater one counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// All that was to be done.
    Done,
    /// Something is damaged; all else was done.
    Damaged,
    /// Something was about to change, and will have in a moment.
    Busy,
    /// A scan keeps records where they are.
    Scanned,
    /// States that are held have versions that are superseded: the oldest and the newest one of them.
    Held(Seqno, Seqno),
}

/// What is to become of a pair.
enum Verdict<'a> {
    /// They have two keys.
    Apart,
    /// This one is superseded, and nobody sees it.
    Older(Entry, &'a Segment),
    /// What keeps the one that is superseded in the index, and what keeps the pair's own record where it is.
    Kept { outcome: Outcome, may_move: Outcome },
}

impl Verdict<'_> {
    /// Nothing may be done because of this.
    fn kept(by: Outcome) -> Self {
        Self::Kept { outcome: by, may_move: by }
    }
}

/// What came of pairs.
struct Settled {
    /// Whether what is superseded in them is out of the index.
    outcome: Outcome,
    /// Whether their own records may be moved behind all others: no newer version is indexed. Older ones that are held need not
    /// keep them.
    may_move: Outcome,
}

impl Settled {
    fn note(&mut self, outcome: Outcome, may_move: Outcome) {
        self.outcome = self.outcome.and(outcome);
        self.may_move = self.may_move.and(may_move);
    }
}

impl Outcome {
    /// What came of both.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Held(a, b), Self::Held(c, d)) => Self::Held(a.min(c), b.max(d)),
            _ => self.max(other),
        }
    }
}

impl Store {
    // ---- what is due ----

    /// The segments in files that may be worked on: none of those that have been emptied.
    fn segments_in_files(&self) -> Vec<Arc<Segment>> {
        let mut segments = self.slots.load().segments();
        segments.retain(|segment| segment.file().is_some() && !segment.figures.is_emptied());
        segments
    }

    fn unresolved(&self) -> Option<Arc<Segment>> {
        let obstacles = self.obstacles();
        let is_due = |segment: &Arc<Segment>| {
            segment.figures.is_unresolved() && !segment.figures.resolving.stands(&obstacles)
        };
        self.segments_in_files().into_iter().find(is_due)
    }

    /// The segment that is worth most to reclaim, if any is worth it; or many short ones, oldest first, of which one is to become: if
    /// each went by itself, and memory is so scarce that the tail is written out at once, as many would be there as before.
    fn victims(&self) -> Vec<Arc<Segment>> {
        let obstacles = self.obstacles();
        let mut segments = self.segments_in_files();
        let written: u64 = segments.iter().map(|segment| segment.figures.written()).sum();
        let dead: u64 = segments.iter().map(|segment| segment.figures.dead()).sum();
        let share = |dead: u64, written: u64| dead as f64 / written.max(1) as f64;
        let much_is_dead = share(dead, written) >= DEAD_SHARE_OF_ALL;
        segments.retain(|segment| !segment.figures.reclaiming.stands(&obstacles));
        let share_of =
            |segment: &Arc<Segment>| share(segment.figures.dead(), segment.figures.written());
        let worst = segments.iter().max_by(|a, b| share_of(a).total_cmp(&share_of(b)));
        let least = if much_is_dead { LEAST_DEAD_SHARE } else { DEAD_SHARE };
        if let Some(worst) = worst.filter(|worst| share_of(worst) >= least) {
            return vec![Arc::clone(worst)];
        }
        let full = lock(&self.writer).segment_units();
        segments.retain(|segment| segment.used() < full / 8);
        if segments.len() < MANY_SHORT {
            return Vec::new();
        }
        let mut together = 0;
        segments.retain(|segment| {
            together += segment.used();
            together <= full / 2
        });
        segments
    }

    /// Whether a checkpoint is worth it: for the next opening, or to forget tombstones.
    fn is_checkpoint_due(&self) -> bool {
        let (behind, is_deferred) = {
            let files = lock(&self.files);
            let contents = &files.manifest.contents;
            let covered = contents.checkpoint.map_or(0, |checkpoint| checkpoint.covers);
            let behind = contents.segments.range(covered + 1..).map(|(_, segment)| segment.len);
            let has_checkpoint = |deferred: &Deferred| deferred.checkpoint.is_some();
            (behind.sum::<u64>(), files.deferred.iter().any(has_checkpoint))
        };
        if is_deferred {
            return false;
        }
        let index = self.index.entries() * checkpoint::ENTRY as u64;
        behind > (2 * self.context.budget.memtables as u64).max(2 * index)
            || self.are_worth_a_checkpoint(self.forgettable())
            || self.may_checkpoint_make_room()
    }

    /// Whether a checkpoint is due for so many tombstones that may be forgotten.
    fn are_worth_a_checkpoint(&self, forgettable: u64) -> bool {
        let share = if self.fullness() > 0.0 { TOMBSTONES_OF_FULL } else { TOMBSTONES };
        let least = (self.index.entries() / share).max(self.most_tombstones() as u64 / 2);
        forgettable >= least
    }

    /// How many tombstones may be forgotten, as far as the last checkpoint knows.
    fn forgettable(&self) -> u64 {
        let tombstones = lock(&self.writer).tombstones;
        tombstones.saturating_sub(lock(&self.upkeep).accompanied)
    }

    /// Whether the index is full, and a checkpoint is on the way to taking something out of it.
    fn may_checkpoint_make_room(&self) -> bool {
        if !self.is_full() {
            return false;
        }
        let segments = self.slots.load().segments();
        let is_in_memory =
            |segment: &Arc<Segment>| segment.file().is_none() && !segment.figures.is_resolved();
        let now = self.found();
        let state = lock(&self.upkeep);
        let is_new = state.found != now || state.found_again < CHECKPOINTS_FOR_ROOM;
        is_new && (now.0 > 0 || segments.iter().any(is_in_memory))
    }

    /// What changes when there is something to forget, or something has been forgotten.
    fn found(&self) -> (u64, u64) {
        let writer = lock(&self.writer);
        (writer.tombstones, writer.forgotten)
    }

    /// A segment of which it is not known how much is dead.
    fn unmeasured(&self) -> Option<Arc<Segment>> {
        self.segments_in_files().into_iter().find(|segment| !segment.figures.is_measured())
    }

    /// Whether something is deferred that may be done now: no flush may come that does it.
    fn is_deferred_due(&self) -> bool {
        let through = self.in_files_through();
        lock(&self.files).deferred.iter().any(|deferred| deferred.after <= through)
    }

    pub(super) fn is_upkeep_due(&self) -> bool {
        self.is_deferred_due()
            || self.unmeasured().is_some()
            || self.unresolved().is_some()
            || !self.victims().is_empty()
            || self.is_checkpoint_due()
            || self.are_tombstones_due()
    }

    /// How far writers must be slowed down for upkeep to keep up.
    pub(super) fn upkeep_pressure(&self) -> u32 {
        self.pressure.load(Ordering::Relaxed)
    }

    /// Finds out anew how far writers must be slowed down. One thread at a time does, so that what it found last counts.
    pub(super) fn weigh(&self) {
        let (tail, tombstones) = {
            let writer = lock(&self.writer);
            (writer.segment_units() as u64, writer.tombstones)
        };
        let alone = lock(&self.upkeep);
        let obstacles = self.obstacles();
        let segments = self.segments_in_files();
        let can_be_resolved = |segment: &&Arc<Segment>| {
            segment.figures.is_unresolved() && !segment.figures.resolving.stands(&obstacles)
        };
        let unresolved = segments.iter().filter(can_be_resolved).count();
        let is_free = |segment: &&Arc<Segment>| !segment.figures.reclaiming.stands(&obstacles);
        let free = segments.iter().filter(is_free);
        let dead: u64 = free.map(|segment| segment.figures.dead()).sum();
        let live: u64 = segments.iter().map(|segment| segment.figures.live()).sum();
        let allowed = live.max(4 * tail) as f64;
        let space = (dead as f64 / allowed - (SPACE - 1.0)).max(0.0) * MOST_PRESSURE as f64;
        let pressure = unresolved.saturating_sub(UNRESOLVED) * PRESSURE_OF_UNRESOLVED;
        let index = self.pressure_of_index(tombstones.saturating_sub(alone.accompanied));
        let pressure = pressure.max(space as usize).max(index).min(MOST_PRESSURE);
        self.pressure.store(pressure as u32, Ordering::Relaxed);
        let full = f64::from(throttle::FULL);
        let debt =
            (unresolved as f64 / UNRESOLVED as f64).max(dead as f64 / allowed / (SPACE - 1.0));
        let debt = debt.max(index as f64 / MOST_PRESSURE as f64);
        self.jobs.set_debt((debt.min(1.0) * full) as u32);
        // Segments that nobody has any more go after it.
        drop(alone);
    }

    /// How far writers must be slowed down so that the index is not full before so many tombstones are forgotten. Not at all for
    /// those that no checkpoint is due for: nothing would end it.
    fn pressure_of_index(&self, forgettable: u64) -> usize {
        if !self.are_worth_a_checkpoint(forgettable) {
            return 0;
        }
        (self.fullness() * MOST_PRESSURE as f64) as usize
    }

    /// How full the index is, from 0 for not nearly to 1.
    fn fullness(&self) -> f64 {
        let entries = self.index.entries();
        let places = self.index.capacity().saturating_sub(entries) as f64;
        let left = self.context.budget.indexes_left_for_puts() / BYTES_PER_ENTRY;
        let share = entries as f64 / (entries as f64 + places + left as f64).max(1.0);
        ((share - FULL_INDEX) / (1.0 - FULL_INDEX)).max(0.0)
    }

    /// Does one piece of the work that is due. Damage that it meets is an error once; what is damaged is put off.
    pub(super) fn tend(&self) -> Result<()> {
        self.tend_to_one()?;
        lock(&self.upkeep).new_damage.take().map_or(Ok(()), Err)
    }

    fn tend_to_one(&self) -> Result<()> {
        if self.is_deferred_due() {
            return self.install_deferred();
        }
        // Until then it would be guesswork what is worth reclaiming.
        if let Some(segment) = self.unmeasured() {
            return self.measure(&segment);
        }
        if self.are_tombstones_due() {
            self.forget_tombstones();
            return Ok(());
        }
        // Taking turns: neither the index nor the files may grow without end, nor what the next opening has to read.
        let is_checkpoint_due = self.is_checkpoint_due();
        let (reclaims, was_passed_over) = {
            let mut state = lock(&self.upkeep);
            state.reclaims = !state.reclaims;
            state.passed_over += u32::from(is_checkpoint_due);
            (state.reclaims, state.passed_over > PASSED_OVER)
        };
        if is_checkpoint_due && was_passed_over {
            return self.write_checkpoint();
        }
        let unresolved = self.unresolved();
        let victims = if reclaims || unresolved.is_none() { self.victims() } else { Vec::new() };
        if !victims.is_empty() {
            victims.iter().try_for_each(|victim| self.reclaim(victim))?;
            // Emptied segments wait for what was moved out of them.
            // Those that wait for a tail that is sealed already do not count: a tail for each would be as short again.
            let first_unsealed = lock(&self.writer).first_unsealed();
            let files = lock(&self.files);
            let waits = |deferred: &&Deferred| deferred.after >= first_unsealed;
            let waiting = files.deferred.iter().filter(waits).count();
            drop(files);
            if waiting > 1 {
                self.seal_soon();
            }
        } else if let Some(segment) = unresolved {
            self.resolve(&segment)?;
        } else if is_checkpoint_due {
            self.write_checkpoint()?;
        }
        Ok(())
    }

    // ---- measuring ----

    /// Finds out how much the large records of a segment take that opening has not read.
    fn measure(&self, segment: &Segment) -> Result<()> {
        let Some(file) = segment.file() else { return Ok(()) };
        for address in segment.figures.unmeasured() {
            self.jobs.stop_if_told()?;
            // What cannot be is found by whoever reads all of it.
            let units = self.unless_damaged(file.units_at(segment.offset(address)))?.flatten();
            segment.figures.measured(address, units.unwrap_or(SLOT_UNITS));
        }
        Ok(())
    }

    // ---- damage ----

    /// What was `read`; `None` if it is damaged, which is taken note of. Other work goes on.
    fn unless_damaged<T>(&self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let mut state = lock(&self.upkeep);
                state.damage.get_or_insert_with(|| error.clone());
                state.new_damage.get_or_insert(error);
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Damage that keeps something from being done.
    pub(super) fn damage(&self) -> Option<Error> {
        lock(&self.upkeep).damage.clone()
    }

    /// Has what is damaged tried again.
    fn forget_damage(&self) {
        let mut state = lock(&self.upkeep);
        (state.damage, state.new_damage) = (None, None);
        drop(state);
        for segment in self.segments_in_files() {
            segment.figures.resolving.forget_damage();
            segment.figures.reclaiming.forget_damage();
        }
    }

    // ---- resolving ----

    /// Takes versions out of the index that newer ones in `segment` supersede.
    fn resolve(&self, segment: &Arc<Segment>) -> Result<()> {
        // What becomes unresolved from here on stays so.
        segment.figures.begin_resolving();
        match self.resolve_records(segment) {
            Ok(Outcome::Done) => {
                segment.figures.end_resolving();
                Ok(())
            }
            Ok(outcome) => {
                segment.figures.set_unresolved();
                self.put_off(&segment.figures.resolving, outcome);
                Ok(())
            }
            Err(error) => {
                segment.figures.set_unresolved();
                Err(error)
            }
        }
    }

    /// Takes note of what kept work on a segment off.
    fn put_off(&self, work: &Block, outcome: Outcome) {
        match outcome {
            Outcome::Done => {}
            Outcome::Damaged => work.begin(Obstacle::Damage),
            Outcome::Busy => self.jobs.wait_a_while(A_MOMENT),
            Outcome::Scanned => work.begin(Obstacle::Scan),
            Outcome::Held(oldest, newest) => work.begin(Obstacle::States(oldest, newest)),
        }
    }

    /// What may keep segments from being worked on now.
    fn obstacles(&self) -> Obstacles {
        Obstacles {
            held: self.context.visibility.held_between(0, Seqno::MAX),
            is_scanned: self.scans.load(Ordering::Acquire) > 0,
        }
    }

    fn resolve_records(&self, segment: &Arc<Segment>) -> Result<Outcome> {
        let mut records = Records::new(Arc::clone(segment));
        let mut pairs = Vec::new();
        let mut ahead = Vec::with_capacity(AHEAD);
        let mut outcome = Outcome::Done;
        loop {
            self.jobs.stop_if_told()?;
            while ahead.len() < AHEAD {
                let Some(next) = self.unless_damaged(records.next())? else {
                    // Nothing tells where the one behind it begins.
                    outcome = outcome.and(Outcome::Damaged);
                    break;
                };
                let Some((at, record)) = next else { break };
                self.index.prefetch(hash64(record.key()));
                // Not the record: what was read ahead with it would stay in memory.
                ahead.push((at, Slice::from(record.key()), record.front.trailer.seqno()));
            }
            if ahead.is_empty() {
                return Ok(outcome.and(self.settle_pairs(&mut pairs)?.outcome));
            }
            for (at, key, seqno) in ahead.drain(..) {
                self.pairs_of(segment, at, (&key, seqno), &mut pairs);
                if pairs.len() >= PAIRS {
                    outcome = outcome.and(self.settle_pairs(&mut pairs)?.outcome);
                }
            }
        }
    }

    /// Adds the pairs that the record at `at`, of this key and number, makes with others of the same hash; gives its entry, `None` if it is not
    /// indexed any more.
    fn pairs_of(
        &self,
        segment: &Arc<Segment>,
        at: usize,
        (key, seqno): (&Slice, Seqno),
        pairs: &mut Vec<Pair>,
    ) -> Option<Entry> {
        let hash = hash64(key);
        let address = segment.address(at);
        let mut found = Candidates::new();
        loop {
            let slots = self.slots.load();
            self.index.find(hash, &mut found);
            if !self.slots.is_current(&slots) {
                continue;
            }
            let entry = *found.as_slice().iter().find(|entry| entry.address() == address)?;
            for &other in found.as_slice().iter().filter(|other| other.address() != address) {
                let Some(other_segment) = slots.segment(other.address()) else { continue };
                pairs.push(Pair {
                    hash,
                    entry,
                    segment: Arc::clone(segment),
                    key: key.clone(),
                    seqno,
                    other,
                    other_segment: Arc::clone(other_segment),
                });
            }
            return Some(entry);
        }
    }

    /// Reads the other record of each pair; if the keys are the same, the older one is taken out of the index.
    fn settle_pairs(&self, pairs: &mut Vec<Pair>) -> Result<Settled> {
        let mut settled = Settled { outcome: Outcome::Done, may_move: Outcome::Done };
        while !pairs.is_empty() {
            let count = round_of(pairs, self.context.budget.total / SHARE_OF_PAIRS);
            let round = pairs.split_off(pairs.len() - count);
            self.settle_round(round, &mut settled)?;
        }
        Ok(settled)
    }

    /// The same of so many as are read together.
    fn settle_round(&self, pairs: Vec<Pair>, settled: &mut Settled) -> Result<()> {
        let mut requests = Vec::new();
        let mut requested = Vec::new();
        for pair in &pairs {
            let at = pair.other_segment.offset(pair.other.address());
            let request = pair.other_segment.file().map(|file| file.request(at, pair.other));
            let request = self.unless_damaged(request.transpose())?.flatten().flatten();
            requested.push(request.is_some());
            requests.extend(request);
        }
        let mut views = self.context.reader.read(&requests).into_iter();
        let mut older = Vec::new();
        for (pair, requested) in pairs.into_iter().zip(requested) {
            let view = if requested { views.next().transpose()? } else { None };
            let verdict = self.unless_damaged(self.judge(&pair, view))?;
            match verdict.unwrap_or(Verdict::kept(Outcome::Damaged)) {
                Verdict::Apart => {}
                Verdict::Older(entry, segment) => {
                    let newer = if entry == pair.entry { pair.other } else { pair.entry };
                    older.push((pair.hash, entry, newer, Arc::clone(&segment.figures)));
                }
                Verdict::Kept { outcome, may_move } => settled.note(outcome, may_move),
            }
        }
        let mut found = Candidates::new();
        let mut left_alone = 0;
        for part in older.chunks(FORGOTTEN) {
            let mut writer = lock(&self.writer);
            for (hash, entry, newer, figures) in part {
                if writer.forget(&self.index, *hash, *entry, figures) && newer.is_tombstone() {
                    self.index.find(*hash, &mut found);
                    left_alone += u64::from(found.as_slice().len() == 1);
                }
            }
        }
        if left_alone > 0 {
            let mut state = lock(&self.upkeep);
            state.accompanied = state.accompanied.saturating_sub(left_alone);
        }
        Ok(())
    }

    /// Judges a pair; `view` is what was read of the other record ahead.
    fn judge<'a>(&self, pair: &'a Pair, view: Option<View>) -> Result<Verdict<'a>> {
        let (other, key) = (&pair.other_segment, &pair.key);
        let found = match (view, other.file()) {
            (Some(view), Some(file)) => {
                file.judge(other.offset(pair.other.address()), view, key)?
            }
            _ => other.read(pair.other, key)?,
        };
        match found {
            Found::Other => Ok(Verdict::Apart),
            Found::Version(trailer, _) => self.judge_versions(pair, trailer.seqno()),
            // It is in memory, and looked at again when it is in a file.
            Found::Busy => Ok(Verdict::kept(Outcome::Busy)),
        }
    }

    /// Judges a pair of two versions of a key, of which the other one has number `other_seqno`.
    fn judge_versions<'a>(&self, pair: &'a Pair, other_seqno: Seqno) -> Result<Verdict<'a>> {
        let seqno = pair.seqno;
        let is_older = (pair.segment.id, seqno) < (pair.other_segment.id, other_seqno);
        let (old, new, entry, segment) = match is_older {
            true => (seqno, other_seqno, pair.entry, &pair.segment),
            false => (other_seqno, seqno, pair.other, &pair.other_segment),
        };
        if old > new {
            let what = format!("write {old} of a key is in an older segment than write {new}");
            return Err(Error::corruption(&self.home.dir, 0, what));
        }
        let (entry, segment) = match is_older {
            true if planted(Bug::ResolveKeepsOlder) => (pair.other, &pair.other_segment),
            false if planted(Bug::ResolveKeepsOlder) => (pair.entry, &pair.segment),
            _ => (entry, segment),
        };
        let visibility = &self.context.visibility;
        // Places in memory change hands; those in files do not.
        if segment.file().is_none() || new > visibility.published() {
            return Ok(Verdict::kept(Outcome::Busy));
        }
        // Whoever lets go of the state has it said here.
        let held = visibility.held().awaited(old, new);
        Ok(match held.map(|seqno| Outcome::Held(seqno, seqno)) {
            Some(held) if is_older => Verdict::kept(held),
            // The newer one may move on, and is still the newer one there.
            Some(held) => Verdict::Kept { outcome: held, may_move: Outcome::Done },
            None => Verdict::Older(entry, segment),
        })
    }

    // ---- reclaiming ----

    /// Moves what is still indexed out of `victim`, and has it removed.
    fn reclaim(&self, victim: &Arc<Segment>) -> Result<()> {
        let outcome = self.unless_damaged(self.empty(victim))?.unwrap_or(Outcome::Damaged);
        if outcome != Outcome::Done {
            self.put_off(&victim.figures.reclaiming, outcome);
            return Ok(());
        }
        victim.figures.set_emptied();
        self.reclaimed.fetch_add(1, Ordering::Relaxed);
        let after = lock(&self.writer).last_started();
        let after = if planted(Bug::ReclaimEarly) { 0 } else { after };
        self.defer(Deferred { after, emptied: vec![Arc::clone(victim)], checkpoint: None })
    }

    fn empty(&self, victim: &Arc<Segment>) -> Result<Outcome> {
        let mut records = Records::new(Arc::clone(victim));
        let most = much(MOVED.0, MOVED.1) as usize;
        let mut moved = 0;
        loop {
            // They are written with the tail, which writers wait for.
            if moved >= most {
                self.jobs.valve().pass(std::mem::take(&mut moved));
                self.jobs.stop_if_told()?;
            }
            self.wait_for_memory()?;
            // It is checked now, and copied at once.
            let Some((at, record)) = records.next()? else { break };
            loop {
                match self.move_record(victim, at, &record)? {
                    Err(obstacle) => return Ok(obstacle),
                    Ok(Relocated::Moved) => {
                        moved += record.key().len() + record.value().len();
                        break;
                    }
                    Ok(Relocated::Gone) => break,
                    Ok(Relocated::LookAgain) => self.jobs.stop_if_told()?,
                }
            }
        }
        // Its place in the address space must not be used again if the index still has something there.
        let writer = lock(&self.writer);
        let is_empty = victim.figures.counted_live() == 0;
        drop(writer);
        if is_empty { Ok(Outcome::Done) } else { Err(victim.misindexed()) }
    }

    /// Moves the record at `at`, if it is indexed and nothing keeps it where it is.
    fn move_record(
        &self,
        victim: &Arc<Segment>,
        at: usize,
        record: &Record,
    ) -> Result<Result<Relocated, Outcome>> {
        let mut pairs = Vec::new();
        let (key, value, trailer) =
            (Slice::from(record.key()), record.value(), record.front.trailer);
        let Some(entry) = self.pairs_of(victim, at, (&key, trailer.seqno()), &mut pairs) else {
            return Ok(Ok(Relocated::Gone));
        };
        // Places in memory change hands: what lies there is looked at again.
        let in_files = pairs.iter().filter(|pair| pair.other_segment.file().is_some());
        let judged: Vec<_> = in_files.map(|pair| pair.other.address()).collect();
        let settled = self.settle_pairs(&mut pairs)?;
        let put = Put { hash: hash64(&key), trailer, key: &key, value: &value };
        let mut writer = lock(&self.writer);
        if settled.may_move != Outcome::Done {
            // Of several newer versions one may have had it taken out of the index.
            let is_indexed = writer.entry(&self.index, put.hash, entry.address()).is_some();
            return Ok(if is_indexed { Err(settled.may_move) } else { Ok(Relocated::Gone) });
        }
        if self.scans.load(Ordering::Acquire) > 0 {
            return Ok(Err(Outcome::Scanned));
        }
        let relocated = writer.relocate(self.place(), &put, entry, victim, &judged);
        if relocated == Relocated::Moved && settled.outcome != Outcome::Done {
            writer.set_tail_unresolved();
        }
        Ok(Ok(relocated))
    }

    /// Does what is deferred now if it may be done now, and with the next flush otherwise.
    fn defer(&self, deferred: Deferred) -> Result<()> {
        lock(&self.files).deferred.push(deferred);
        self.install_deferred()
    }

    /// Does what is deferred and may be done now.
    fn install_deferred(&self) -> Result<()> {
        self.install(Edit::default(), &[], &[], self.in_files_through())
    }

    /// All segments up to this number are in files.
    fn in_files_through(&self) -> u64 {
        let writer = lock(&self.writer);
        self.first_sealed().unwrap_or_else(|| writer.first_unsealed()) - 1
    }

    /// Waits while moving records would take memory that writers need, as long as there is something here that gives
    /// memory back.
    fn wait_for_memory(&self) -> Result<()> {
        let budget = &self.context.budget;
        while budget.memtables_used() > budget.memtables / 2 {
            self.jobs.stop_if_told()?;
            if let Some(error) = self.jobs.trouble_of(Work::Flush) {
                return Err(error);
            }
            if lock(&self.writer).unsealed_bytes() > budget.memtables / 16 {
                self.seal_soon();
            } else if self.first_sealed().is_none() {
                break;
            }
            self.jobs.wait_a_while(A_MOMENT);
        }
        self.jobs.stop_if_told()
    }

    pub(super) fn seal_soon(&self) {
        self.seal(|writer| writer.seal_soon());
    }

    // ---- checkpoints ----

    /// Writes a checkpoint; it takes effect when what was written meanwhile is in files.
    fn write_checkpoint(&self) -> Result<()> {
        let (covers, id) = {
            let mut writer = lock(&self.writer);
            let first = self.first_sealed().unwrap_or_else(|| writer.first_unsealed());
            (first - 1, writer.take_id())
        };
        let mut seen = Tombstones { covers, entries: Vec::new() };
        let mut accompanied = 0;
        let written = self.write_entries(id, &mut seen, &mut accompanied);
        if written.is_err() {
            checkpoint::remove(&self.home, id);
            // Other work may make the room that it needs, and has its turn.
            lock(&self.upkeep).passed_over = 0;
        }
        let meta = written?;
        seen.entries.shrink_to_fit();
        let found = self.found();
        {
            let mut state = lock(&self.upkeep);
            state.waiting = std::mem::replace(&mut state.seen, seen);
            state.checkpoint = id;
            state.passed_over = 0;
            state.accompanied = accompanied;
            state.found_again = if state.found == found { state.found_again + 1 } else { 1 };
            state.found = found;
        }
        self.charge_index();
        let after = lock(&self.writer).last_started();
        self.seal_soon();
        self.defer(Deferred { after, emptied: Vec::new(), checkpoint: Some(meta) })
    }

    fn write_entries(
        &self,
        id: u64,
        seen: &mut Tombstones,
        accompanied: &mut u64,
    ) -> Result<super::manifest::CheckpointMeta> {
        let covers = seen.covers;
        let mut out = CheckpointWriter::create(&self.home, id, covers, Some(self.jobs.valve()))?;
        let most_tombstones = self.most_tombstones();
        let mut entries: Vec<(u64, Entry)> = Vec::new();
        let mut bucket = 0;
        loop {
            entries.clear();
            {
                let writer = lock(&self.writer);
                let end = writer.index.buckets();
                if bucket == end {
                    break;
                }
                let slots = self.slots.load();
                let is_covered = |entry: &Entry| {
                    slots.segment(entry.address()).is_some_and(|segment| segment.id <= covers)
                };
                for bucket in bucket..end.min(bucket + BUCKETS) {
                    let start = entries.len();
                    writer
                        .index
                        .visit(&self.index, bucket, |hash, entry| entries.push((hash, entry)));
                    let visited = &mut entries[start..];
                    visited.sort_unstable_by_key(|(hash, _)| *hash);
                    let is_old =
                        |(_, entry): &&(u64, Entry)| entry.is_tombstone() && is_covered(entry);
                    for same in visited.chunk_by(|(a, _), (b, _)| a == b) {
                        let old = same.iter().filter(is_old);
                        if same.len() > 1 {
                            *accompanied += old.count() as u64;
                        } else if seen.entries.len() < most_tombstones {
                            seen.entries.extend(old);
                        }
                    }
                }
                entries.retain(|(_, entry)| is_covered(entry));
                bucket = end.min(bucket + BUCKETS);
            }
            self.jobs.stop_if_told()?;
            entries.iter().try_for_each(|&(hash, entry)| out.add(hash, entry))?;
        }
        let meta = out.finish()?;
        self.home.fs.sync_dir(&self.home.dir)?;
        Ok(meta)
    }

    /// Whether tombstones wait that can be forgotten now.
    fn are_tombstones_due(&self) -> bool {
        let state = lock(&self.upkeep);
        if state.waiting.entries.is_empty() {
            return false;
        }
        let wanted = state.checkpoint;
        drop(state);
        lock(&self.files).manifest.contents.checkpoint.is_some_and(|meta| meta.id >= wanted)
    }

    /// How many tombstones are remembered from one checkpoint to the next.
    fn most_tombstones(&self) -> usize {
        self.context.budget.total / BUDGET_PER_TOMBSTONE
    }

    /// Forgets the tombstones that wait for it; gives how many there were.
    fn forget_tombstones(&self) -> usize {
        let Tombstones { covers, entries } = std::mem::take(&mut lock(&self.upkeep).waiting);
        let mut found = Candidates::new();
        for part in entries.chunks(64) {
            let mut writer = lock(&self.writer);
            let slots = self.slots.load();
            for &(hash, entry) in part {
                self.index.find(hash, &mut found);
                if let (&[only], Some(segment)) = (found.as_slice(), slots.segment(entry.address()))
                    && only == entry
                    && segment.id <= covers
                {
                    writer.forget(&self.index, hash, entry, &segment.figures);
                }
            }
        }
        let count = entries.len();
        drop(entries);
        // The last checkpoint has seen them too, and it may be long until the next one. Nobody else tends meanwhile.
        let mut seen = std::mem::take(&mut lock(&self.upkeep).seen);
        seen.entries.retain(|&(hash, entry)| {
            self.index.find(hash, &mut found);
            found.as_slice().contains(&entry)
        });
        seen.entries.shrink_to_fit();
        lock(&self.upkeep).seen = seen;
        self.charge_index();
        count
    }

    /// Writes a checkpoint that covers all there is. Nothing is written any more, and all is in files. Without it
    /// the next opening takes longer, and that is all: it is not insisted on.
    pub(super) fn checkpoint_at_close(&self) -> Result<()> {
        // Closing is waited for.
        self.jobs.valve().stop();
        let _tending = self.tend_alone()?;
        let contents = lock(&self.files).manifest.contents.clone();
        let covered = contents.checkpoint.map_or(0, |checkpoint| checkpoint.covers);
        let has_new = contents.segments.keys().next_back().is_some_and(|&last| last > covered);
        if has_new {
            self.write_checkpoint()?;
        }
        // Upkeep may have moved records into the tail.
        self.wait_for_deferred()
    }

    // ---- all at once ----

    /// Keeps others from tending until the guard is dropped; waits for those who do, unless they are in trouble.
    fn tend_alone(&self) -> Result<Running<'_>> {
        self.jobs.take_over(Work::Upkeep, &[Work::Upkeep])
    }

    /// Reclaims all that is dead, as far as no snapshot sees it.
    pub(super) fn compact_all(&self) -> Result<()> {
        // What failed before may succeed now.
        self.jobs.forget_trouble(Work::Upkeep);
        let tending = self.tend_alone()?;
        self.forget_damage();
        let compacted = self.compact_alone();
        let damage = lock(&self.upkeep).new_damage.take();
        drop(tending);
        // What became due meanwhile was not taken up.
        self.schedule_upkeep();
        compacted.and(damage.map_or(Ok(()), Err))
    }

    fn compact_alone(&self) -> Result<()> {
        lock(&self.writer).drop_superseded(self.place());
        self.wait_for_tail()?;
        for segment in self.segments_in_files() {
            if segment.figures.is_unresolved() {
                self.resolve(&segment)?;
                self.weigh();
            }
        }
        let has_tombstones = lock(&self.writer).tombstones > 0;
        let forgotten = if has_tombstones { self.forget_all_tombstones() } else { Ok(()) };
        // What follows may make the room that a checkpoint needs.
        if forgotten.as_ref().is_err_and(|error| error.kind() != ErrorKind::NoSpace) {
            return forgotten;
        }
        let obstacles = self.obstacles();
        let segments = self.segments_in_files();
        let short = lock(&self.writer).segment_units() / 2;
        let many_are_short = segments.iter().filter(|segment| segment.used() < short).count() > 1;
        for segment in segments {
            let is_short = many_are_short && segment.used() < short;
            let figures = &segment.figures;
            let has_dead = figures.counted() > figures.counted_live();
            if (has_dead || is_short) && !figures.reclaiming.stands(&obstacles) {
                self.reclaim(&segment)?;
            }
        }
        if has_tombstones && forgotten.is_ok() {
            self.write_checkpoint()?;
        }
        self.wait_for_deferred()?;
        forgotten
    }

    /// Waits until all that there is by now is in files. Upkeep may have moved something behind what was persisted, where nothing is resolved and
    /// no checkpoint finds tombstones.
    fn wait_for_tail(&self) -> Result<()> {
        let last = lock(&self.writer).last_started();
        self.seal_soon();
        while self.in_files_through() < last {
            self.jobs.stop_if_told()?;
            if let Some(error) = self.jobs.trouble_of(Work::Flush) {
                return Err(error);
            }
            self.jobs.wait_a_while(A_MOMENT);
        }
        Ok(())
    }

    /// Forgets the tombstones that there is no older version of.
    fn forget_all_tombstones(&self) -> Result<()> {
        // A tombstone goes with the second checkpoint that finds it alone, and a checkpoint finds only so many. Those that come
        // meanwhile are not waited for.
        let most = self.most_tombstones();
        let rounds = lock(&self.writer).tombstones.div_ceil(most as u64);
        for _ in 0..rounds {
            for _ in 0..2 {
                self.write_checkpoint()?;
                self.wait_for_deferred()?;
            }
            if self.forget_tombstones() < most {
                break;
            }
        }
        Ok(())
    }

    /// Has the tail sealed and waits until all that was deferred is done.
    fn wait_for_deferred(&self) -> Result<()> {
        self.seal_soon();
        while !lock(&self.files).deferred.is_empty() {
            self.jobs.stop_if_told()?;
            if let Some(error) = self.jobs.trouble_of(Work::Flush) {
                return Err(error);
            }
            self.install_deferred()?;
            self.jobs.wait_a_while(A_MOMENT);
        }
        Ok(())
    }

    // ---- verifying ----

    /// Reads all files, checks all checksums, and compares the index with what is there.
    pub(super) fn verify_files(&self, report: &mut VerifyReport) {
        let files = lock(&self.files);
        let manifest = Manifest::open(&*self.home.fs, &self.home.dir, self.context.identity);
        let checkpoint = files.manifest.contents.checkpoint;
        report.files += 1;
        report.problems.extend(manifest.err());
        let opened = checkpoint.map(|meta| Checkpoint::open(&self.home, meta));
        // Flushes need them. What is open is read to its end, though another one takes its place meanwhile.
        drop(files);
        report.files += u64::from(checkpoint.is_some());
        report.bytes += checkpoint.map_or(0, |meta| meta.len);
        let read = opened.map(|opened| opened.and_then(|checkpoint| checkpoint.load(|_, _| {})));
        report.problems.extend(read.and_then(Result::err));
        for segment in self.slots.load().segments() {
            if let Some(file) = segment.file() {
                report.files += 1;
                report.bytes += file.len;
            }
            if let Err(error) = self.verify_segment(&segment, report) {
                report.problems.push(error);
            }
        }
    }

    /// The entry of a record that was read at `at`; `None` if it is not indexed, or if its place is another one's by now.
    fn entry_of(&self, segment: &Segment, at: usize, record: &Record) -> Option<Entry> {
        let address = segment.address(at);
        let mut writer = lock(&self.writer);
        let slots = self.slots.load();
        slots.segment(address).filter(|there| there.id == segment.id)?;
        // The front says which write it is; it changes under this lock only, and never once the segment is sealed.
        let is_there = segment.memory().is_none_or(|memory| memory.front(at) == Some(record.front));
        let hash = hash64(record.key());
        is_there.then(|| writer.entry(&self.index, hash, address)).flatten()
    }

    fn verify_segment(&self, segment: &Arc<Segment>, report: &mut VerifyReport) -> Result<()> {
        let indexed_before = segment.figures.counted_live();
        let mut records = Records::new(Arc::clone(segment));
        let mut indexed = 0;
        while let Some((at, record)) = records.next()? {
            report.entries += 1;
            let entry = self.entry_of(segment, at, &record);
            let is_tombstone = record.front.trailer.kind() == Kind::Delete;
            if entry.is_some_and(|entry| entry.is_tombstone() != is_tombstone) {
                return Err(segment.misindexed());
            }
            indexed += entry.map_or(0, size_of_entry);
        }
        // A segment in a file only ever loses records.
        if segment.file().is_some()
            && segment.figures.counted_live() == indexed_before
            && indexed as u64 != indexed_before
        {
            return Err(segment.misindexed());
        }
        Ok(())
    }
}
