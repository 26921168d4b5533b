//! A status that would be too long to be read is published with less detail:
//!
//! 1. Spans of a level are taken together, two and two, until there is one for each level: sums stay as they are.
//! 2. Levels, claims and jobs are left out.
//! 3. So is the second half of the keyspaces, and again half of what is left.

use super::encoding::{Stamp, encode};
use super::{Span, Status};

/// The bytes of a file, no more than `most` if that is enough for what is no list.
pub(super) fn encode_in(most: u64, stamp: Stamp, mut status: Status) -> Vec<u8> {
    loop {
        let bytes = encode(stamp, &status);
        if bytes.len() as u64 <= most || !(coarsen(&mut status) || shorten(&mut status)) {
            return bytes;
        }
    }
}

/// Takes neighbouring spans together; false if there are none.
fn coarsen(status: &mut Status) -> bool {
    let mut is_coarser = false;
    let trees = status.keyspaces.iter_mut().filter_map(|keyspace| keyspace.tree.as_mut());
    for level in trees.flat_map(|tree| &mut tree.levels) {
        if level.spans.len() > 1 {
            level.spans = level.spans.chunks(2).map(together).collect();
            is_coarser = true;
        }
    }
    is_coarser
}

/// All of `spans`, of which there are some, as one.
fn together(spans: &[Span]) -> Span {
    let sum = |of: fn(&Span) -> u64| spans.iter().map(of).fold(0, u64::saturating_add);
    let smallest = spans.iter().map(|span| &span.smallest).min();
    let largest = spans.iter().map(|span| &span.largest).max();
    Span {
        smallest: smallest.cloned().unwrap_or_default(),
        largest: largest.cloned().unwrap_or_default(),
        tables: sum(|span| span.tables),
        bytes: sum(|span| span.bytes),
    }
}

/// Leaves out what there is most of; false if nothing is left of that.
fn shorten(status: &mut Status) -> bool {
    let mut is_shorter = !status.jobs.is_empty();
    status.jobs.clear();
    for tree in status.keyspaces.iter_mut().filter_map(|keyspace| keyspace.tree.as_mut()) {
        is_shorter |= !(tree.levels.is_empty() && tree.claims.is_empty());
        tree.levels.clear();
        tree.claims.clear();
    }
    if !is_shorter && !status.keyspaces.is_empty() {
        status.keyspaces.truncate(status.keyspaces.len() / 2);
        is_shorter = true;
    }
    is_shorter
}

#[cfg(test)]
mod tests {
    use super::super::encoding::decode;
    use super::super::{LONGEST_STATUS, LevelStatus, tests};
    use super::*;

    /// As many keyspaces, each with a level of so many runs of one table.
    fn status(keyspaces: usize, runs: u64) -> Status {
        let mut status = tests::status();
        let span = |run: u64| Span {
            smallest: [&run.to_be_bytes()[..], &[1; 56]].concat(),
            largest: [&(run + 2).to_be_bytes()[..], &[9; 56]].concat(),
            tables: 1,
            bytes: 1 << 20,
        };
        let mut keyspace = status.keyspaces.swap_remove(0);
        let tree = keyspace.tree.as_mut().unwrap();
        tree.levels = vec![LevelStatus { level: 0, runs, spans: (0..runs).map(span).collect() }];
        status.keyspaces = vec![keyspace; keyspaces];
        status
    }

    fn published(most: u64, status: &Status) -> Status {
        let bytes = encode_in(most, (1, 2), status.clone());
        assert!(bytes.len() as u64 <= most, "{} bytes", bytes.len());
        decode(&bytes).unwrap().1
    }

    #[test]
    fn what_fits_is_published_as_it_is() {
        let status = status(3, 100);
        assert_eq!(published(LONGEST_STATUS, &status), status);
    }

    #[test]
    fn many_spans_are_taken_together_and_all_keep_their_sums() {
        let status = status(20, 10_000);
        assert!(encode((1, 2), &status).len() as u64 > LONGEST_STATUS);
        let found = published(LONGEST_STATUS, &status);
        assert_eq!(found.jobs, status.jobs);
        for keyspace in &found.keyspaces {
            let level = &keyspace.tree.as_ref().unwrap().levels[0];
            assert!(level.spans.len() > 1000, "{}", level.spans.len());
            assert_eq!((level.runs, level.tables(), level.bytes()), (10_000, 10_000, 10_000 << 20));
            assert_eq!(level.spans[0].smallest[..8], 0_u64.to_be_bytes());
            assert_eq!(level.spans.last().unwrap().largest[..8], 10_001_u64.to_be_bytes());
        }
    }

    #[test]
    fn nothing_is_too_much_to_be_published() {
        let status = status(1000, 10);
        let without_spans = published(150_000, &status);
        assert_eq!(without_spans.keyspaces.len(), 1000);
        assert!(
            without_spans.keyspaces.iter().all(|of| of.tree.as_ref().unwrap().levels.is_empty())
        );
        let shorter = published(10_000, &status);
        assert!((50..1000).contains(&shorter.keyspaces.len()), "{}", shorter.keyspaces.len());
        assert!(published(200, &status).keyspaces.len() < 10);
    }
}
