//! What an arena has room for.

use std::iter;
use std::sync::Arc;

use crate::budget::Budget;
use crate::memtable::LARGEST_BATCH;
use crate::memtable::arena::{Arena, Kind, Pen};
use crate::memtable::entry::LARGE;

const UNIT: usize = 16;
const LONGEST_KEY: usize = 64 << 10;

/// The largest batch comes to a memtable that is nearly full; its pieces are such as leave much of a chunk over.
#[test]
#[cfg_attr(miri, ignore = "takes gigabytes")]
fn the_largest_batch_has_room() {
    for mebibytes in [1, 64, 4096] {
        for len in [1000, 33 << 10, 65 << 10, LARGE, LARGE + LONGEST_KEY] {
            let budget = Arc::new(Budget::new(mebibytes << 20));
            let (arena, mut pen) = (Arena::new(), Pen::new(&budget));
            let pieces = (budget.memtable + LARGEST_BATCH) / len;
            let kinds = [Kind::Segment, Kind::Leaf, Kind::Inner, Kind::Head];
            for kind in kinds.into_iter().chain(iter::repeat_n(Kind::Entry, pieces)) {
                arena.allocate(&mut pen, kind, len, UNIT);
            }
            assert!(arena.allocated() < pieces * len / 2 * 3, "{mebibytes} MiB, {len}");
        }
    }
}
