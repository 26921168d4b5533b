//! What to compact next: policies, each a pure function of a version.
//!
//! A level is kept as runs, newest first, each as it came (*tiered*), or as one run that is kept merged (*levelled*): the
//! one with the number 0. Flushes add runs to level 0. What the policies have in common:
//!
//! - Tables that overlap nothing on their way move as they are, as many as there are with one change: ascending keys are
//!   written once. Small tables are merged instead, with small neighbours, so that they do not pile up; and
//!   so are those that are mostly tombstones which hide nothing.
//! - A merge into a levelled level takes all tables there that lie between the smallest and the largest of its keys: its
//!   tables may reach from one to the other.
//! - Nothing goes below what is older.

mod columns;
pub(crate) mod debt;
mod fifo;
mod lazy;
mod levelled;
mod listed;
#[cfg(test)]
mod simulation;
mod tiered;
mod tombstones;

use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::claims::{Held, Wanted};
use crate::lsm::version::{Place, Run, TableFile, Version};
use crate::options::Policy as Chosen;
use crate::planted::{Bug, planted};
use crate::throttle;

/// Writers are slowed down from so many runs on more than level 0 may have,
const SLOW: u64 = 8;
/// and wait at so many.
const STOP: u64 = 36;
/// The pressure at which writers wait.
pub(crate) const FULL: u32 = 1000;
/// How many choices of a policy are looked at while others are at work.
const TRIES: usize = 8;
/// No more neighbours of a level go down together,
const MOST_SUNK: usize = 4;
/// and no more than is merged into so many tables, unless it is one.
const SUNK_INTO: u64 = 16;
/// The most runs of level 0 that are merged into a levelled level at once.
const MOST_RUNS: usize = 16;

/// The sizes that shape a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// About what a flush writes.
    pub(crate) flush_bytes: u64,
    /// What the first levelled level may hold if there are deeper ones.
    pub(crate) base_bytes: u64,
    /// A table that is merged is ended at about this many bytes.
    pub(crate) table_bytes: u64,
}

impl Shape {
    /// A table with less than this many bytes is small.
    fn small_bytes(&self) -> u64 {
        self.table_bytes.min(self.flush_bytes / 2) / 4
    }

    /// As many of `bounds` as `bytes` may be divided at so that the parts, if they are alike, are not small.
    pub(crate) fn thin_out(&self, bounds: Vec<Vec<u8>>, bytes: u64) -> Vec<Vec<u8>> {
        let most = (bytes / (2 * self.small_bytes()).max(1)).max(1) as usize;
        if bounds.len() < most {
            return bounds;
        }
        (1..most).map(|part| bounds[part * bounds.len() / most].clone()).collect()
    }

    fn is_small(&self, table: &TableFile) -> bool {
        table.meta.len < self.small_bytes()
    }

    /// Whether tables have too few bytes for their number.
    fn are_small<'a>(&self, tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> bool {
        let (mut bytes, mut count) = (0, 0);
        tables.into_iter().for_each(|table| (bytes, count) = (bytes + table.meta.len, count + 1));
        bytes < count * self.small_bytes()
    }
}

/// What becomes of tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// They are merged into new ones.
    Merge,
    /// They change their place as they are.
    Move,
    /// They go, with all that is in them.
    Drop,
}

/// The run that tables go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Into {
    /// The one that is kept merged.
    Merged,
    /// A new one, newer than all of the level.
    Newest,
    /// The one with this number, which the tables are of.
    Its(u64),
}

/// A change that is due.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// What it is about. For any key, all entries of the run they go to are among it, and none that lies between.
    pub(crate) inputs: Vec<Arc<TableFile>>,
    pub(crate) work: Work,
    /// The level that they go to.
    pub(crate) level: usize,
    pub(crate) into: Into,
}

impl Choice {
    /// Whether all is among its tables that must be, whatever a policy that saw a part of `version` made of it: no table goes
    /// below one that is older and has keys where it has some; no table goes away before all that are older; and what is merged has the place
    /// for itself.
    pub(crate) fn is_whole(&self, version: &Version) -> bool {
        let ids: HashSet<u64> = self.inputs.iter().map(|table| table.meta.id).collect();
        let is_input = |table: &Arc<TableFile>| ids.contains(&table.meta.id);
        if self.work == Work::Drop {
            // Also of those with other keys: of what is written the last part is to stay, without a gap.
            return fifo::oldest_first(version).take(self.inputs.len()).all(is_input);
        }
        let target = match self.into {
            Into::Merged => Place::merged(self.level),
            Into::Newest => Place { level: self.level, run: u64::MAX },
            Into::Its(run) => Place { level: self.level, run },
        };
        let runs = version.runs();
        let until = runs.partition_point(|run| run.place.age() <= target.age());
        let passes = |at: usize, table: &Arc<TableFile>| {
            let between = if at < until { &runs[at + 1..until] } else { &runs[until..at] };
            let met = |run: &Run| {
                run.overlapping(&table.meta.smallest, &table.meta.largest).iter().all(is_input)
            };
            between.iter().all(met)
        };
        let is_free = match runs[..until].last().filter(|run| run.place == target) {
            Some(run) if self.work == Work::Merge => {
                run.tables()[met(run, &self.inputs)].iter().all(is_input)
            }
            _ => true,
        };
        is_free
            && runs.iter().enumerate().all(|(at, run)| {
                run.tables().iter().filter(|table| is_input(table)).all(|table| passes(at, table))
            })
    }
}

/// What is due in `version` most urgently of what can be done beside what is `held`, and what that has to claim. A policy is
/// shown the tree without what compactions work on, and without what could not be had of its last choices. If it would have tables that are
/// put off, it is shown the tree without all of those, and then without what cannot pass them.
pub(crate) fn next(
    policy: &dyn Policy,
    version: &Version,
    shape: &Shape,
    held: &Held,
) -> Option<(Choice, Wanted)> {
    let busy = held.tables();
    let put_off = held.put_off_in(version);
    let mut hidden = busy.clone();
    for _ in 0..TRIES {
        let seen = if hidden.is_empty() { None } else { Some(version.with(&hidden, &[])?) };
        let choice = policy.pick(seen.as_ref().unwrap_or(version), shape)?;
        let wanted = Wanted::by(&choice, version);
        if choice.is_whole(version) && held.leaves_free(&wanted) {
            return Some((choice, wanted));
        }
        if busy.is_empty() && put_off.is_empty() {
            return None;
        }
        let in_the_way = in_the_way(&choice, &put_off, &hidden);
        if !in_the_way.is_empty() {
            hidden.extend(in_the_way);
            continue;
        }
        let ids: HashSet<u64> = choice.inputs.iter().map(|table| table.meta.id).collect();
        let first = version.runs().iter().find_map(|run| {
            let inputs = run.tables().iter().filter(|table| ids.contains(&table.meta.id));
            let inputs: Vec<u64> = inputs.map(|table| table.meta.id).collect();
            (!inputs.is_empty()).then_some(inputs)
        });
        hidden.extend(first?);
    }
    None
}

/// The numbers of what a choice that could not be had must be made without because of tables that are put off, besides what is
/// `hidden`: those tables, or if it has none of them, those of its own with keys where they have some.
fn in_the_way(choice: &Choice, put_off: &[&Arc<TableFile>], hidden: &[u64]) -> Vec<u64> {
    let ids = |tables: &mut dyn Iterator<Item = &Arc<TableFile>>| -> Vec<u64> {
        tables.map(|table| table.meta.id).collect()
    };
    let is_put_off = |table: &Arc<TableFile>| put_off.iter().any(|other| Arc::ptr_eq(table, other));
    if choice.inputs.iter().any(is_put_off) {
        let mut more = put_off.iter().copied().filter(|table| !hidden.contains(&table.meta.id));
        return ids(&mut more);
    }
    let meets = |table: &&Arc<TableFile>| {
        let met = |other: &&Arc<TableFile>| {
            table.meta.smallest <= other.meta.largest && other.meta.smallest <= table.meta.largest
        };
        put_off.iter().any(met)
    };
    ids(&mut choice.inputs.iter().filter(meets))
}

/// How a tree is kept in shape.
pub(crate) trait Policy: Send + Sync + Debug {
    /// The most urgent change, if one is due.
    fn pick(&self, version: &Version, shape: &Shape) -> Option<Choice>;
    /// What leaves who reads in order fewer runs to look into, though nothing is due.
    fn for_readers(&self, version: &Version, shape: &Shape) -> Option<Choice> {
        let (_, _) = (version, shape);
        None
    }
    /// Everything merged into one run; `None` if there is nothing to be done.
    fn everything(&self, version: &Version) -> Option<Choice>;
    /// How many runs, or flushes, level 0 has more than it may.
    fn excess(&self, version: &Version, shape: &Shape) -> u64;
    /// The keys, ascending, at which flushes and merges from level 0 end their tables, if they are not too small then: each
    /// begins a new one.
    fn bounds(&self, version: &Version, shape: &Shape) -> Vec<Vec<u8>> {
        let (_, _) = (version, shape);
        Vec::new()
    }
    /// The bytes that will be written until nothing is due, about.
    fn debt(&self, version: &Version, shape: &Shape) -> u64 {
        let _ = (version, shape);
        0
    }
    /// Where `tables`, a run that is newer than all there is, may go at once.
    fn place(&self, version: &Version, tables: &[Arc<TableFile>], shape: &Shape) -> (usize, Into);
}

/// What keeps the policy that was chosen.
pub(crate) fn policy(chosen: &Chosen) -> Box<dyn Policy> {
    match chosen {
        Chosen::Levelled { size_ratio } => Box::new(levelled::Levelled::new(*size_ratio)),
        Chosen::Tiered { runs } => Box::new(tiered::Tiered { runs: *runs }),
        Chosen::LazyLevelled { runs } => Box::new(lazy::LazyLevelled { runs: *runs }),
        Chosen::Fifo { bytes } => Box::new(fifo::Fifo { bytes: *bytes }),
        Chosen::Levels(levels) => Box::new(listed::Listed { levels: levels.clone() }),
    }
}

/// How far writers must be slowed down while level 0 has so much more than it may: 0 to [`FULL`], in proportion.
pub(crate) fn pressure(excess: u64) -> u32 {
    let over = excess.saturating_sub(SLOW).min(STOP - SLOW);
    (over * u64::from(FULL) / (STOP - SLOW)) as u32
}

/// How near that is to slowing writers down, of [`throttle::FULL`].
fn nearness(excess: u64) -> u32 {
    (excess.min(SLOW) * u64::from(throttle::FULL) / SLOW) as u32
}

/// How far writers must be slowed down for a version, and how near upkeep that is not done is to that.
pub(crate) fn weigh(policy: &dyn Policy, version: &Version, shape: &Shape) -> (u32, u32) {
    let excess = policy.excess(version, shape);
    let of_bytes = debt::pressure(policy.debt(version, shape), version, shape);
    let near = if of_bytes > 0 { throttle::FULL } else { nearness(excess) };
    (pressure(excess).max(of_bytes), near)
}

// ---- what policies are made of ----

/// The run of a level that is kept merged.
fn merged(version: &Version, level: usize) -> Option<&Run> {
    version.level(level).last().filter(|run| run.place.run == 0)
}

/// The runs of a levelled level that wait to be merged with that one.
fn unmerged(version: &Version, level: usize) -> &[Run] {
    let runs = version.level(level);
    &runs[..runs.partition_point(|run| run.place.run > 0)]
}

fn tables_of(runs: &[Run]) -> Vec<Arc<TableFile>> {
    runs.iter().flat_map(Run::tables).cloned().collect()
}

/// Whether no run has keys where any of the tables has.
fn lie_free(tables: &[Arc<TableFile>], runs: &[Run]) -> bool {
    planted(Bug::LoadBelowOlder)
        || runs.iter().all(|run| tables.iter().all(|table| !run.meets(table)))
}

/// Those tables of `runs` that overlap none of the others, nor of the runs `below`, of runs whose tables are not small.
fn free(runs: &[Run], below: &[Run], shape: &Shape) -> Vec<Arc<TableFile>> {
    let is_free = |at: usize, table: &Arc<TableFile>| {
        let others = runs.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, run)| run);
        !others.chain(below).any(|other| other.meets(table))
    };
    let large = runs.iter().enumerate().filter(|(_, run)| !shape.are_small(run.tables()));
    let tables = large.flat_map(|(at, run)| run.tables().iter().map(move |table| (at, table)));
    tables.filter(|&(at, table)| is_free(at, table)).map(|(_, table)| Arc::clone(table)).collect()
}

/// The oldest `most` runs of a level into the merged run of `level`, which lies below or is the same.
fn into_merged(
    version: &Version,
    runs: &[Run],
    most: usize,
    level: usize,
    shape: &Shape,
) -> Choice {
    let waiting = unmerged(version, level);
    if !waiting.is_empty() && runs[0].place.level != level {
        return into_merged(version, waiting, usize::MAX, level, shape);
    }
    let (into, below) = (Into::Merged, &version.level(level)[waiting.len()..]);
    let inputs = free(runs, below, shape);
    let ends = |table: &Arc<TableFile>| tombstones::end_in(version, table, Place::merged(level));
    let (mut ended, moved): (Vec<_>, Vec<_>) = inputs.into_iter().partition(ends);
    if !moved.is_empty() {
        return Choice { inputs: moved, work: Work::Move, level, into };
    }
    if let Some(table) = ended.pop() {
        // By itself: what lies between two of them would have to be merged with them.
        return Choice { inputs: vec![table], work: Work::Merge, level, into };
    }
    let mut inputs = tables_of(&runs[runs.len().saturating_sub(most)..]);
    if let Some(run) = merged(version, level) {
        let met = with_small_neighbours(run, met(run, &inputs), shape);
        inputs.extend_from_slice(&run.tables()[met]);
    }
    Choice { inputs, work: Work::Merge, level, into }
}

/// All runs of a level into one new run of `level`.
fn into_newest(version: &Version, runs: &[Run], level: usize, shape: &Shape) -> Choice {
    let inputs = tables_of(runs);
    let mut sorted = inputs.clone();
    sorted.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let are_apart = sorted.is_sorted_by(|a, b| a.meta.largest < b.meta.smallest);
    let newest = Place { level, run: u64::MAX };
    let bytes = |tables: &mut dyn Iterator<Item = &Arc<TableFile>>| {
        tables.map(|table| table.meta.len).sum::<u64>()
    };
    let ended = bytes(&mut inputs.iter().filter(|of| tombstones::end_in(version, of, newest)));
    let are_kept = ended < bytes(&mut inputs.iter()).div_ceil(2);
    let moves =
        (are_apart && are_kept && !shape.are_small(&inputs)) || planted(Bug::MoveOverlapping);
    let work = if moves { Work::Move } else { Work::Merge };
    Choice { inputs, work, level, into: Into::Newest }
}

/// Which tables of a run lie between the smallest and the largest key of `tables`.
fn met(run: &Run, tables: &[Arc<TableFile>]) -> Range<usize> {
    let smallest = tables.iter().map(|table| &table.meta.smallest).min();
    let largest = tables.iter().map(|table| &table.meta.largest).max();
    let (Some(smallest), Some(largest)) = (smallest, largest) else { return 0..0 };
    let from = run.tables().partition_point(|table| table.meta.largest < *smallest);
    from..from + run.overlapping(smallest, largest).len()
}

/// The same with the tables next to them, if those are small.
fn with_small_neighbours(run: &Run, mut met: Range<usize>, shape: &Shape) -> Range<usize> {
    let is_small = |at: usize| run.tables().get(at).is_some_and(|table| shape.is_small(table));
    if met.start > 0 && is_small(met.start - 1) {
        met.start -= 1;
    }
    if is_small(met.end) {
        met.end += 1;
    }
    met
}

/// How much of a level is too much.
#[derive(Clone, Copy, Debug)]
struct Excess {
    tables: usize,
    bytes: u64,
}

/// The runs that wait to be merged in the first of these levels where there are some. Nothing leaves any in a level from which tables go down, but
/// a manifest may say that there are.
fn merge_waiting(version: &Version, levels: [usize; 2], shape: &Shape) -> Option<Choice> {
    levels.into_iter().find_map(|level| {
        let waiting = unmerged(version, level);
        let merged = || into_merged(version, waiting, usize::MAX, level, shape);
        (!waiting.is_empty()).then(merged)
    })
}

/// Tables of the merged run of `level` into that of the level below: as many as are too much, of those that overlap nothing
/// there; if there are none, the one that overlaps least in proportion to its size, or the neighbours that do together: at the ends of what goes down
/// lie tables that it overlaps in part, and neighbours have those in common.
fn sink(version: &Version, level: usize, excess: Excess, shape: &Shape) -> Option<Choice> {
    let waiting = merge_waiting(version, [level + 1, level], shape);
    if waiting.is_some() {
        return waiting;
    }
    let run = merged(version, level)?;
    let (into, below) = (Into::Merged, merged(version, level + 1));
    let choice = |inputs, work| Choice { inputs, work, level: level + 1, into };
    let overlap = |table: &Arc<TableFile>| {
        below.map_or(&[][..], |run| run.overlapping(&table.meta.smallest, &table.meta.largest))
    };
    let mut left = excess;
    let is_too_much = |table: &&Arc<TableFile>| {
        let is_too_much = left.tables > 0 && left.bytes > 0;
        left.tables = left.tables.saturating_sub(1);
        left.bytes = left.bytes.saturating_sub(table.meta.len);
        is_too_much
    };
    let free = run.tables().iter().filter(|table| overlap(table).is_empty());
    let moved: Vec<_> = free.take_while(is_too_much).cloned().collect();
    if !moved.is_empty() {
        return Some(choice(moved, Work::Move));
    }
    let inputs = overlapping_least(run, below, excess.tables, shape)?;
    Some(choice(inputs, Work::Merge))
}

/// The one table of `run`, or the neighbours, that overlap the fewest bytes of the run `below` for their own, and what they overlap.
fn overlapping_least(
    run: &Run,
    below: Option<&Run>,
    most: usize,
    shape: &Shape,
) -> Option<Vec<Arc<TableFile>>> {
    let below = below.map_or(&[][..], Run::tables);
    let bytes = |tables: &[Arc<TableFile>]| tables.iter().map(|table| table.meta.len).sum::<u64>();
    let mut least: Option<(f64, Range<usize>, Range<usize>)> = None;
    let mut from = 0;
    for (start, first) in run.tables().iter().enumerate() {
        let is_behind = |table: &Arc<TableFile>| table.meta.largest < first.meta.smallest;
        from += below[from..].iter().take_while(|table| is_behind(table)).count();
        let (mut own, mut met, mut to) = (0, 0, from);
        for (at, table) in run.tables().iter().enumerate().skip(start).take(most.min(MOST_SUNK)) {
            let is_met = |other: &Arc<TableFile>| other.meta.smallest <= table.meta.largest;
            let more = below[to..].iter().take_while(|other| is_met(other)).count();
            own += table.meta.len;
            met += bytes(&below[to..to + more]);
            to += more;
            if at > start && own + met > shape.table_bytes.saturating_mul(SUNK_INTO) {
                break;
            }
            let cost = met as f64 / own.max(1) as f64;
            if least.as_ref().is_none_or(|(least, ..)| cost < *least) {
                least = Some((cost, start..at + 1, from..to));
            }
        }
    }
    let (_, own, met) = least?;
    Some([&run.tables()[own], &below[met]].concat())
}

/// All tables into one run of `level`; `None` if there are none.
fn all_into(version: &Version, level: usize, into: Into) -> Option<Choice> {
    let inputs: Vec<_> = version.tables().cloned().collect();
    (!inputs.is_empty()).then_some(Choice { inputs, work: Work::Merge, level, into })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::simulation::{Row, SHAPE, Tree, fill, flushes, ids, version};
    use super::*;
    use crate::error::Error;
    use crate::lsm::compaction::claims::Claims;
    use crate::options::{CompactionLock, Level, LevelLimit};

    /// Claims of a tree in whose tables with these numbers damage was met.
    fn with_damage(tables: &[u64]) -> Arc<Claims> {
        let claims = Claims::new(CompactionLock::RangeLevel);
        let damage = Error::corruption("damaged".as_ref(), 0, "on purpose");
        claims.see(|held| held.put_off(tables.iter().copied(), &damage));
        claims
    }

    /// Policies of every kind, with small limits.
    fn policies() -> Vec<Chosen> {
        vec![
            Chosen::Levelled { size_ratio: 2 },
            Chosen::Levelled { size_ratio: 10 },
            Chosen::Tiered { runs: 2 },
            Chosen::LazyLevelled { runs: 2 },
            Chosen::Fifo { bytes: 2000 },
            Chosen::Levels(vec![
                Level::Tiering(LevelLimit::Count(2)),
                Level::Levelling(LevelLimit::Count(3)),
                Level::Tiering(LevelLimit::Bytes(900)),
                Level::Levelling(LevelLimit::Bytes(1500)),
            ]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn compactions_side_by_side_keep_all_in_order(
            flushes in flushes(),
            dice in proptest::collection::vec(any::<u8>(), 20..200),
        ) {
            for chosen in policies() {
                for lock in
                    [CompactionLock::Database, CompactionLock::Range, CompactionLock::RangeLevel]
                {
                    let policy = policy(&chosen);
                    let mut tree = Tree::new();
                    let most = tree.take_all(&flushes, &dice, &*policy, &SHAPE, lock);
                    prop_assert!(most <= 1 || lock != CompactionLock::Database);
                    prop_assert!(policy.pick(&tree.version, &SHAPE).is_none(), "{chosen}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_is_put_off_is_read_by_nothing_and_all_stays_in_order(
            flushes in flushes(),
            more in flushes(),
            dice in proptest::collection::vec(any::<proptest::sample::Index>(), 1..4),
        ) {
            for chosen in policies() {
                let policy = policy(&chosen);
                let mut tree = Tree::new();
                flushes.iter().for_each(|flush| tree.take(flush, &*policy, &SHAPE));
                let all: Vec<u64> = tree.version.tables().map(|table| table.meta.id).collect();
                if all.is_empty() {
                    continue;
                }
                let put_off: HashSet<u64> = dice.iter().map(|index| *index.get(&all)).collect();
                let claims = with_damage(&put_off.iter().copied().collect::<Vec<_>>());
                let mut left = 10_000;
                for flush in [None].into_iter().chain(more.iter().map(Some)) {
                    flush.into_iter().for_each(|flush| tree.flush(flush, &*policy, &SHAPE));
                    let next = |tree: &Tree| {
                        claims.see(|held| next(&*policy, &tree.version, &SHAPE, held))
                    };
                    while let Some((choice, _)) = next(&tree) {
                        let is_put_off = |id: &u64| put_off.contains(id);
                        prop_assert!(choice.work == Work::Drop || !ids(&choice).iter().any(is_put_off));
                        tree.apply(&choice, &SHAPE);
                        tree.check();
                        left -= 1;
                        prop_assert!(left > 0, "{chosen}: it goes on for ever");
                    }
                }
                claims.see(Held::forget_damage);
                tree.settle(&*policy, &SHAPE);
            }
        }
    }

    #[test]
    fn what_cannot_pass_a_table_that_is_put_off_is_in_nothing_elses_way() {
        let mut rows: Vec<Row> =
            vec![((6, 0), 1, (b"a", b"f"), 400), ((6, 0), 2, (b"p", b"t"), 400)];
        for run in 10..16 {
            rows.push(((0, run), 10 * run, (b"b", b"d"), 150));
            rows.push(((0, run), 10 * run + 1, (b"q", b"s"), 150));
        }
        let version = version(&rows);
        let policy = levelled::Levelled::new(10);
        let chosen = |claims: &Arc<Claims>| {
            let next = claims.see(|held| next(&policy, &version, &SHAPE, held));
            next.map(|(choice, _)| ids(&choice))
        };
        let chosen_without = |tables: &[u64]| chosen(&with_damage(tables));
        for (damaged, healthy, unit) in [(1, 2, 1), (2, 1, 0)] {
            let found = chosen_without(&[damaged]).expect("something is due");
            assert!(found.contains(&healthy) || !found.contains(&damaged), "{found:?}");
            assert!(found.iter().all(|id| *id == healthy || id % 10 == unit), "{found:?}");
        }
        assert_eq!(chosen_without(&[1, 2]), None);
    }

    #[test]
    fn what_is_put_off_may_be_dropped() {
        let rows: [Row; 2] = [((0, 9), 9, (b"a", b"d"), 100), ((0, 3), 3, (b"a", b"d"), 100)];
        let version = version(&rows);
        let dropped = with_damage(&[3])
            .see(|held| next(&fifo::Fifo { bytes: 100 }, &version, &SHAPE, held))
            .map(|(choice, _)| ids(&choice));
        assert_eq!(dropped, Some(vec![3]));
    }

    /// A table of the oldest run may be at work for long, as when it is written anew for the values that it refers to.
    #[test]
    fn no_table_is_dropped_beside_an_older_one_that_stays() {
        let rows: [Row; 4] = [
            ((0, 9), 9, (b"m", b"n"), 100),
            ((0, 7), 7, (b"g", b"h"), 100),
            ((0, 3), 4, (b"d", b"e"), 100),
            ((0, 3), 3, (b"a", b"b"), 100),
        ];
        let version = version(&rows);
        let policy = fifo::Fifo { bytes: 250 };
        let claims = Claims::new(CompactionLock::RangeLevel);
        let dropped = || {
            let next = claims.see(|held| next(&policy, &version, &SHAPE, held));
            next.map(|(choice, _)| ids(&choice))
        };
        assert_eq!(dropped(), Some(vec![3, 4]));
        for (work, into, busy, expected) in [
            (Work::Merge, Into::Its(3), 3, None),
            (Work::Drop, Into::Newest, 3, None),
            (Work::Merge, Into::Its(3), 4, Some(vec![3])),
            (Work::Merge, Into::Its(7), 7, Some(vec![3])),
        ] {
            let inputs = version.tables().filter(|table| table.meta.id == busy);
            let choice = Choice { inputs: inputs.cloned().collect(), work, level: 0, into };
            let claim = claims.claim(|_| Some(((), Wanted::by(&choice, &version)))).unwrap();
            assert_eq!(dropped(), expected, "{work:?} of {busy}");
            drop(claim);
        }
        assert_eq!(dropped(), Some(vec![3, 4]));
    }

    #[test]
    fn a_tree_of_several_levels_is_compacted_at_several_places_at_once() {
        let policy = levelled::Levelled::new(2);
        let dice: Vec<u8> =
            (0..100).map(|number| if number % 7 < 3 { 0 } else { 2 }).chain([1]).collect();
        let most = |lock| Tree::new().take_all(&fill(60), &dice, &policy, &SHAPE, lock);
        let (range, both) = (most(CompactionLock::Range), most(CompactionLock::RangeLevel));
        assert!(both > range && range >= 1, "{both} with levels, {range} without");
    }

    #[test]
    fn pressure_grows_from_nothing_to_a_full_stop() {
        let all: Vec<u32> = (0..=2 * STOP).map(pressure).collect();
        assert!(all.is_sorted());
        assert!(all[..=SLOW as usize].iter().all(|&pressure| pressure == 0));
        assert!(all[SLOW as usize + 1] > 0 && all[STOP as usize - 1] < 1000);
        assert_eq!(all[(SLOW + STOP) as usize / 2], 500);
        assert!(all[STOP as usize..].iter().all(|&pressure| pressure == 1000));
    }
}
