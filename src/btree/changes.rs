//! What a checkpoint changes: the newest versions of a memtable's keys, in key order, between two writes.

use crate::base::{Kind, Seqno};
use crate::error::{Error, Result};
use crate::iter::EntryCursor;

/// After so many entries it is looked whether to stop.
const BETWEEN_LOOKS: u64 = 1024;

/// For each of `states`, which ascend, whether there is a write up to it that is behind the one before it, or behind `after`. Takes
/// one pass over all entries, however many states there are; none if there are no states.
///
/// # Errors
/// `Closed` if told to stop.
pub(super) fn are_between(
    mut entries: impl EntryCursor,
    after: Seqno,
    states: &[Seqno],
    stop: &dyn Fn() -> bool,
) -> Result<Vec<bool>> {
    let mut found = vec![false; states.len()];
    if states.is_empty() {
        return Ok(found);
    }
    entries.seek_to_first()?;
    let mut looks = 0_u64;
    while entries.is_valid() {
        looks += 1;
        if looks.is_multiple_of(BETWEEN_LOOKS) && stop() {
            return Err(Error::Closed);
        }
        let seqno = entries.trailer().seqno();
        if seqno > after
            && let Some(found) = found.get_mut(states.partition_point(|&state| state < seqno))
        {
            *found = true;
        }
        entries.next()?;
    }
    Ok(found)
}

/// A walk over the changes that writes behind `after` and up to `through` make.
pub(super) struct Changes<C> {
    entries: C,
    after: Seqno,
    through: Seqno,
    key: Vec<u8>,
    kind: Kind,
    is_valid: bool,
}

impl<C: EntryCursor> Changes<C> {
    /// The walk, on the first change.
    pub(super) fn new(mut entries: C, after: Seqno, through: Seqno) -> Result<Self> {
        entries.seek_to_first()?;
        let (key, kind) = (Vec::new(), Kind::Put);
        let mut changes = Self { entries, after, through, key, kind, is_valid: false };
        changes.settle()?;
        Ok(changes)
    }

    /// The key to be changed; `None` at the end.
    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.is_valid.then_some(&self.key)
    }

    /// Its new value; `None` if it is to be removed.
    pub(super) fn value(&self) -> Option<&[u8]> {
        (self.kind == Kind::Put).then(|| self.entries.value())
    }

    /// Goes to the next change.
    pub(super) fn next(&mut self) -> Result<()> {
        // Older versions of this key come first.
        while self.entries.is_valid() && self.entries.key() == self.key {
            self.entries.next()?;
        }
        self.settle()
    }

    /// Stands on the next entry of the range. The first version of a key that is in it is the newest one.
    fn settle(&mut self) -> Result<()> {
        self.is_valid = false;
        while self.entries.is_valid() {
            let trailer = self.entries.trailer();
            if (self.after + 1..=self.through).contains(&trailer.seqno()) {
                self.key.clear();
                self.key.extend_from_slice(self.entries.key());
                (self.kind, self.is_valid) = (trailer.kind(), true);
                return Ok(());
            }
            self.entries.next()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Trailer;
    use crate::iter::sample::{Entry, Sorted};

    fn entries(seqnos: &[Seqno]) -> Vec<Entry> {
        let entry = |(at, &seqno): (usize, &Seqno)| {
            let key = (at as u32).to_be_bytes().to_vec();
            Entry { key, trailer: Trailer::new(seqno, Kind::Put), value: Vec::new() }
        };
        seqnos.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn states_with_writes_in_front_of_them_are_found_in_one_pass() {
        let seqnos = [30, 3, 12, 14, 21, 5];
        let between = |after, states: &[Seqno]| {
            are_between(Sorted::new(entries(&seqnos)), after, states, &|| false).unwrap()
        };
        assert_eq!(between(5, &[5, 11, 12, 13, 20, 29]), [false, false, true, false, true, true]);
        assert_eq!(between(2, &[4]), [true]);
        assert_eq!(between(30, &[31, 40]), [false, false]);
        assert_eq!(between(0, &[]), [false; 0]);
        // It says of each what a walk over its changes says.
        let states = [4, 5, 6, 13, 14, 20, 21, 22, 29];
        let mut after = 2;
        for (&state, found) in states.iter().zip(between(2, &states)) {
            let changes = Changes::new(Sorted::new(entries(&seqnos)), after, state).unwrap();
            assert_eq!(changes.key().is_some(), found, "{state}");
            after = state;
        }
    }

    #[test]
    fn who_looks_for_them_stops_when_told_to() {
        let many: Vec<_> = (1..=5000).collect();
        let stopped = are_between(Sorted::new(entries(&many)), 0, &[7], &|| true);
        assert!(matches!(stopped, Err(Error::Closed)), "{stopped:?}");
    }
}
