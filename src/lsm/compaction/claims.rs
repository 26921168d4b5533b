//! Claims: which parts of a tree compactions work on, so that several can run side by side.
//!
//! A part is a rectangle: a level, and a range of keys. A compaction claims one for each level that it takes tables from,
//! and one for the level that it writes to, whose range is that of all its inputs, those of the output level among them:
//! what it writes lies in there. Two compactions may run together unless rectangles of theirs meet. So they may have the same
//! keys on different levels at the same time, but what one of them writes is never what another one reads, or lies where
//! another one writes.
//!
//! The rectangles are those of Kim et al., *Compaction with (key range x level) locks*, and so are the larger *extents* that
//! they are measured against: one compaction at a time, as in LevelDB, or one for each range of keys over all levels.
//!
//! A claim ends when it is dropped, also by a panic. One that is older than a clear counts no more: nothing comes of what is done
//! under it.
//!
//! *Damage.* Tables in which a compaction has met damage are put off: no other one reads them until that is forgotten, so that all else
//! is done. They may still be dropped.
//!
//! Thread safety: everything may be called from any thread.
//!
//! Locks: `held`, called `claims` in the order of locks.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use super::policy::{Choice, Work};
use crate::base::Seqno;
use crate::error::Error;
use crate::lsm::version::{Run, TableFile, Version};
use crate::options::CompactionLock;
use crate::planted::{Bug, planted};
use crate::sync::{Mutex, MutexGuard};

/// Keys, from the smallest to the largest, on a level.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rectangle {
    level: usize,
    smallest: Vec<u8>,
    largest: Vec<u8>,
}

impl Rectangle {
    /// The range of `tables` on `level`; `None` if there are none.
    fn around<'a>(
        level: usize,
        tables: impl IntoIterator<Item = &'a Arc<TableFile>>,
    ) -> Option<Self> {
        let range = |table: &'a Arc<TableFile>| (&table.meta.smallest, &table.meta.largest);
        let both = |a: (_, _), b: (_, _)| (Ord::min(a.0, b.0), Ord::max(a.1, b.1));
        let (smallest, largest) = tables.into_iter().map(range).reduce(both)?;
        Some(Self { level, smallest: smallest.clone(), largest: largest.clone() })
    }

    fn shares_keys(&self, other: &Self) -> bool {
        self.smallest <= other.largest && other.smallest <= self.largest
    }
}

/// The claims on one tree.
#[derive(Debug)]
pub(crate) struct Claims {
    held: Mutex<Held>,
}

/// What is claimed.
#[derive(Debug, Default)]
pub(crate) struct Held {
    extent: CompactionLock,
    /// The number of the last clear; what was claimed before it is not here any more.
    cleared: Seqno,
    claims: Vec<(u64, Wanted)>,
    /// The number of the next claim.
    next: u64,
    /// The numbers of tables that are put off, and the damage that was met first.
    put_off: HashSet<u64>,
    damage: Option<Error>,
}

/// What a compaction claims.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    rectangles: Vec<Rectangle>,
    /// The numbers of its tables.
    tables: Vec<u64>,
    /// Whether these are read.
    reads: bool,
}

impl Wanted {
    /// What has to be claimed for `choice`: the parts of its tables, level by level, and that of what it writes.
    pub(crate) fn by(choice: &Choice, version: &Version) -> Self {
        let tables: Vec<u64> = choice.inputs.iter().map(|table| table.meta.id).collect();
        let ids: HashSet<u64> = tables.iter().copied().collect();
        let is_input = |table: &&Arc<TableFile>| ids.contains(&table.meta.id);
        let mut rectangles = Vec::new();
        for (level, runs) in version.levels() {
            let inputs: Vec<_> = runs.iter().flat_map(Run::tables).filter(is_input).collect();
            rectangles.extend(Rectangle::around(level, inputs));
        }
        rectangles.extend(Rectangle::around(choice.level, &choice.inputs));
        Self { rectangles, tables, reads: choice.work != Work::Drop }
    }

    /// What has to be claimed for new tables on a level.
    pub(crate) fn place(level: usize, tables: &[Arc<TableFile>]) -> Self {
        let rectangles = Rectangle::around(level, tables).into_iter().collect();
        Self { rectangles, tables: Vec::new(), reads: false }
    }
}

impl Held {
    /// Goes on with what there is since a clear, which comes to nothing if it was claimed before.
    pub(crate) fn go_on_since(&mut self, cleared: Seqno) {
        if cleared > self.cleared {
            self.cleared = cleared;
            self.claims.clear();
            self.forget_damage();
        }
    }

    /// Has nothing read these tables until [that is forgotten](Self::forget_damage), because of `damage`.
    pub(crate) fn put_off(&mut self, tables: impl IntoIterator<Item = u64>, damage: &Error) {
        self.put_off.extend(tables);
        self.damage.get_or_insert_with(|| damage.clone());
    }

    /// What was damaged may have been mended.
    pub(crate) fn forget_damage(&mut self) {
        self.put_off.clear();
        self.damage = None;
    }

    /// Whether a table is put off.
    pub(crate) fn is_put_off(&self, table: &TableFile) -> bool {
        self.put_off.contains(&table.meta.id)
    }

    /// How many tables are, those among them that are gone.
    pub(crate) fn count_put_off(&self) -> usize {
        self.put_off.len()
    }

    /// The tables of a version that are put off.
    pub(crate) fn put_off_in<'a>(&self, version: &'a Version) -> Vec<&'a Arc<TableFile>> {
        match self.put_off.is_empty() {
            true => Vec::new(),
            false => version.tables().filter(|table| self.is_put_off(table)).collect(),
        }
    }

    /// The damage that keeps tables of a version from being compacted, if there are any.
    pub(crate) fn damage_in(&self, version: &Version) -> Option<Error> {
        self.damage.clone().filter(|_| !self.put_off_in(version).is_empty())
    }

    /// Whether a claim to `wanted` would be given: nothing of it is claimed, and none of its tables is put off.
    pub(crate) fn leaves_free(&self, wanted: &Wanted) -> bool {
        if wanted.reads && wanted.tables.iter().any(|id| self.put_off.contains(id)) {
            return false;
        }
        let meet = |a: &Rectangle, b: &Rectangle| match self.extent {
            CompactionLock::Database => true,
            CompactionLock::Range => a.shares_keys(b),
            CompactionLock::RangeLevel => a.level == b.level && a.shares_keys(b),
        };
        let mut all = self.claims.iter().flat_map(|(_, held)| &held.rectangles);
        !all.any(|held| wanted.rectangles.iter().any(|wanted| meet(wanted, held)))
    }

    /// What is claimed: the number of the claim, the level, and the first and the last key.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, usize, &[u8], &[u8])> {
        self.claims.iter().flat_map(|(number, wanted)| {
            wanted
                .rectangles
                .iter()
                .map(|part| (*number, part.level, &part.smallest[..], &part.largest[..]))
        })
    }

    /// The numbers of the tables that compactions work on.
    pub(crate) fn tables(&self) -> Vec<u64> {
        self.claims.iter().flat_map(|(_, held)| &held.tables).copied().collect()
    }
}

impl Claims {
    pub(crate) fn new(extent: CompactionLock) -> Arc<Self> {
        let held = Held { extent, ..Held::default() };
        Arc::new(Self { held: Mutex::new(held) })
    }

    /// Claims what `wish` asks for, if that is anything and free. Nobody else claims anything meanwhile, so what it has seen
    /// of the tree is still there when the claim begins.
    pub(crate) fn claim<T>(
        self: &Arc<Self>,
        wish: impl FnOnce(&mut Held) -> Option<(T, Wanted)>,
    ) -> Option<(T, Claim)> {
        let mut held = self.lock();
        let (thing, wanted) = wish(&mut held)?;
        if !held.leaves_free(&wanted) {
            return None;
        }
        let number = held.next;
        held.next += 1;
        if !planted(Bug::ForgetClaim) {
            held.claims.push((number, wanted));
        }
        Some((thing, Claim { claims: Arc::clone(self), number }))
    }

    /// What `look` makes of what is claimed now.
    pub(crate) fn see<T>(&self, look: impl FnOnce(&mut Held) -> T) -> T {
        look(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim that is held.
#[must_use]
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    number: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().claims.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A level, and its keys from one to another.
    type Part = (usize, u8, u8);

    fn rectangle((level, smallest, largest): Part) -> Rectangle {
        Rectangle { level, smallest: vec![smallest], largest: vec![largest] }
    }

    fn claim(claims: &Arc<Claims>, wanted: &[Part]) -> Option<Claim> {
        let rectangles = wanted.iter().copied().map(rectangle).collect();
        let wanted = Wanted { rectangles, tables: Vec::new(), reads: true };
        claims.claim(|_| Some(((), wanted))).map(|((), claim)| claim)
    }

    #[test]
    fn what_one_writes_is_not_what_another_reads() {
        // Figure 5 of the source: the output of a compaction is the source of the next one.
        let claims = Claims::new(CompactionLock::RangeLevel);
        let first = claim(&claims, &[(1, 10, 20), (2, 5, 30)]).unwrap();
        assert!(claim(&claims, &[(2, 25, 40), (3, 20, 50)]).is_none());
        drop(first);
        assert!(claim(&claims, &[(2, 25, 40), (3, 20, 50)]).is_some());
    }

    #[test]
    fn outputs_that_overlap_wait_though_their_sources_do_not() {
        // Figure 6: two tables of a level with a common one below them.
        let claims = Claims::new(CompactionLock::RangeLevel);
        let first = claim(&claims, &[(1, 10, 20), (2, 5, 30)]).unwrap();
        assert!(claim(&claims, &[(1, 28, 40), (2, 25, 50)]).is_none());
        let other = claim(&claims, &[(1, 41, 50), (2, 31, 50)]).unwrap();
        // The same keys, two levels further down.
        let below = claim(&claims, &[(3, 10, 20), (4, 5, 50)]).unwrap();
        drop((first, other, below));
    }

    #[test]
    fn extents_are_what_they_are_called() {
        let meets = |extent, wanted: &[Part]| {
            let claims = Claims::new(extent);
            let _held = claim(&claims, &[(1, 10, 20), (2, 5, 30)]).unwrap();
            claim(&claims, wanted).is_none()
        };
        use CompactionLock::{Database, Range, RangeLevel};
        for (wanted, expected) in [
            ([(3, 10, 20), (4, 5, 30)], [true, true, false]),
            ([(3, 31, 40), (4, 31, 50)], [true, false, false]),
            ([(0, 0, 4), (1, 0, 10)], [true, true, true]),
        ] {
            assert_eq!(
                [Database, Range, RangeLevel].map(|extent| meets(extent, &wanted)),
                expected
            );
        }
    }

    #[test]
    fn what_was_claimed_before_a_clear_is_in_nobodys_way() {
        let claims = Claims::new(CompactionLock::Database);
        let go_on = |cleared| claims.see(|held| held.go_on_since(cleared));
        let before = claim(&claims, &[(0, 0, 9)]).unwrap();
        go_on(7);
        let since = claim(&claims, &[(0, 0, 9)]).unwrap();
        drop(before);
        go_on(7);
        assert!(claim(&claims, &[(0, 0, 9)]).is_none());
        drop(since);
        assert!(claim(&claims, &[(0, 0, 9)]).is_some());
    }

    #[test]
    fn a_panic_gives_back_what_was_claimed() {
        let claims = Claims::new(CompactionLock::Database);
        let theirs = Arc::clone(&claims);
        let thread = std::thread::spawn(move || {
            let _held = claim(&theirs, &[(0, 0, 9)]).unwrap();
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        assert!(claim(&claims, &[(0, 0, 9)]).is_some());
    }

    /// Two rectangles cell by cell: levels times keys.
    fn cells(wanted: &[Part]) -> std::collections::BTreeSet<(usize, u8)> {
        let keys = |&(level, from, to): &Part| (from..=to).map(move |key| (level, key));
        wanted.iter().flat_map(keys).collect()
    }

    proptest! {
        #[test]
        fn claims_are_given_as_a_board_of_cells_says(
            jobs in proptest::collection::vec(
                (proptest::collection::vec((0..4_usize, 0..12_u8, 0..4_u8), 1..3), any::<u8>()),
                1..60,
            ),
        ) {
            for extent in [CompactionLock::Database, CompactionLock::Range, CompactionLock::RangeLevel] {
                let claims = Claims::new(extent);
                let mut held: Vec<(Claim, Vec<Part>)> = Vec::new();
                for (wanted, dice) in &jobs {
                    let wanted: Vec<_> =
                        wanted.iter().map(|&(level, from, len)| (level, from, from + len)).collect();
                    let is_free = held.iter().all(|(_, other)| match extent {
                        CompactionLock::Database => false,
                        CompactionLock::Range => {
                            let keys = |cells: &[_]| -> std::collections::BTreeSet<u8> {
                                self::cells(cells).into_iter().map(|(_, key)| key).collect()
                            };
                            keys(other).is_disjoint(&keys(&wanted))
                        }
                        CompactionLock::RangeLevel => cells(other).is_disjoint(&cells(&wanted)),
                    });
                    let given = claim(&claims, &wanted);
                    prop_assert_eq!(given.is_some(), is_free);
                    held.extend(given.map(|claim| (claim, wanted)));
                    if dice % 3 == 0 && !held.is_empty() {
                        drop(held.swap_remove(usize::from(*dice) % held.len()));
                    }
                }
            }
        }
    }
}
