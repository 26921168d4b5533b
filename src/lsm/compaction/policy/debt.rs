//! The bytes that merges will write until nothing is due any more, as far as that can be told from the sizes of levels.
//!
//! Level 0 alone does not tell it: a tree may keep that short and put off what lies deeper, which gets more than the tree has
//! room for, and slower to read and to merge into. So writers are slowed down, too, when the debt is a multiple of the
//! tree's own size.

use super::{FULL, Shape};
use crate::lsm::version::Version;

/// Writers are slowed down from a debt of so many times the tree's bytes,
const SLOW_TIMES: u64 = 2;
/// and of so many flushes, which a small tree has at once. They wait at twice that.
const SLOW_FLUSHES: u64 = 256;

/// How far writers must be slowed down by a debt: 0 to [`FULL`], in proportion.
pub(crate) fn pressure(debt: u64, version: &Version, shape: &Shape) -> u32 {
    let bytes = version.levels().map(|(level, _)| version.level_bytes(level));
    let bytes = bytes.fold(0, u64::saturating_add);
    let slow =
        SLOW_TIMES.saturating_mul(bytes).saturating_add(SLOW_FLUSHES * shape.flush_bytes).max(1);
    let over = debt.saturating_sub(slow).min(slow);
    (u128::from(over) * u128::from(FULL) / u128::from(slow)) as u32
}

/// The debt of levels that are kept merged, each with its bytes and how many it may have, when so many arrive in the first. What goes
/// down takes with it its share of the next level, and may be too much there.
pub(super) fn of_levels(arriving: u64, levels: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let (mut debt, mut arriving) = (0_u64, arriving);
    let mut above = arriving;
    for (bytes, room) in levels {
        if arriving > 0 {
            let met = u128::from(bytes) * u128::from(arriving) / u128::from(above);
            let met = u64::try_from(met).unwrap_or(u64::MAX);
            debt = debt.saturating_add(arriving).saturating_add(met);
        }
        above = bytes.saturating_add(arriving);
        arriving = above.saturating_sub(room);
    }
    debt
}

/// The debt of tiers, each with its runs and their bytes, of which as many as `most` may be there. All of a tier that has more
/// become one more run of the next.
pub(super) fn of_tiers(most: u32, tiers: impl IntoIterator<Item = (usize, u64)>) -> u64 {
    let (mut debt, mut arriving) = (0_u64, 0);
    for (runs, bytes) in tiers {
        let (runs, bytes) = (runs + usize::from(arriving > 0), bytes.saturating_add(arriving));
        arriving = if runs > most as usize { bytes } else { 0 };
        debt = debt.saturating_add(arriving);
    }
    debt
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Row, SHAPE, version};
    use super::*;

    #[test]
    fn what_is_too_much_goes_down_with_its_share_of_what_it_meets() {
        let deepest = (10_000, u64::MAX);
        assert_eq!(of_levels(0, [(100, 100), (1000, 1000), deepest]), 0);
        // 50 of a level of 150 meet a third of the next.
        assert_eq!(of_levels(0, [(150, 100), (900, 1000), deepest]), 50 + 300);
        assert_eq!(of_levels(0, [(150, 100), (1200, 1000), deepest]), 50 + 400 + 250 + 2000);
        // What comes from level 0 meets all of the first, and nothing at all in an empty tree.
        assert_eq!(of_levels(40, [(60, 100), deepest]), 40 + 60);
        assert_eq!(of_levels(40, [(0, u64::MAX)]), 40);
        assert_eq!(
            of_levels(u64::MAX / 2, [(u64::MAX / 4, u64::MAX)]),
            u64::MAX / 2 + u64::MAX / 4
        );
    }

    #[test]
    fn a_tier_with_too_many_runs_is_written_and_counts_in_the_next() {
        assert_eq!(of_tiers(4, [(4, 40), (4, 160), (4, 640)]), 0);
        assert_eq!(of_tiers(4, [(5, 50), (3, 160), (4, 640)]), 50);
        assert_eq!(of_tiers(4, [(5, 50), (4, 160), (3, 640)]), 50 + 210);
    }

    #[test]
    fn pressure_begins_when_the_debt_is_a_multiple_of_the_tree() {
        let rows: [Row; 1] = [((6, 0), 1, (b"a", b"z"), 1_000_000)];
        let pressure = |debt| pressure(debt, &version(&rows), &SHAPE);
        let slow = 2 * 1_000_000 + 64 * 1000;
        assert_eq!(
            [0, slow, slow + slow / 2, 2 * slow, u64::MAX].map(pressure),
            [0, 0, 500, FULL, FULL]
        );
        assert_eq!(super::pressure(65_000, &version(&[]), &SHAPE), 15, "small trees may owe more");
    }
}
