//! Which entries must be kept.
//!
//! The states that must stay readable (held snapshots, and what was visible when the job began) cut the
//! versions of a key into stripes. Of each stripe only the newest entry is ever seen. Entries newer than
//! all of those states are kept, for snapshots yet to be taken. A tombstone that is the newest of the
//! oldest stripe is not needed either, if nothing older of its key lies deeper.

use crate::base::{Kind, Seqno, Trailer};

/// Decides entry by entry, in the order of a merge.
#[derive(Debug)]
pub(crate) struct Retention {
    /// Ascending.
    readable: Vec<Seqno>,
    key: Option<Vec<u8>>,
    stripe: Option<usize>,
}

impl Retention {
    /// `readable` are the sequence numbers whose states must stay readable, ascending.
    pub(crate) fn new(readable: Vec<Seqno>) -> Self {
        debug_assert!(readable.is_sorted());
        Self { readable, key: None, stripe: None }
    }

    /// Whether the last entry was one of this key. A put of any other key must be kept.
    pub(crate) fn is_at(&self, key: &[u8]) -> bool {
        self.key.as_deref() == Some(key)
    }

    /// Whether the entry must be kept; `is_deepest` says whether no older entry of a key can lie deeper.
    pub(crate) fn keeps(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        is_deepest: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        if self.key.as_deref() != Some(key) {
            let kept = self.key.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(key);
            self.stripe = None;
        }
        let stripe = self.readable.partition_point(|&seqno| seqno < trailer.seqno());
        if stripe == self.readable.len() {
            return true;
        }
        if self.stripe == Some(stripe) {
            return false;
        }
        self.stripe = Some(stripe);
        !(trailer.kind() == Kind::Delete && stripe == 0 && is_deepest(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Versions = Vec<(Seqno, Kind)>;

    fn kept(readable: &[Seqno], versions: &Versions, deepest: bool) -> Versions {
        let mut retention = Retention::new(readable.to_vec());
        let keep = |&&(seqno, kind): &&(Seqno, Kind)| {
            retention.keeps(b"k", Trailer::new(seqno, kind), |_| deepest)
        };
        versions.iter().filter(keep).copied().collect()
    }

    fn seen(versions: &Versions, at: Seqno) -> Option<Seqno> {
        let newest = versions.iter().find(|(seqno, _)| *seqno <= at)?;
        (newest.1 == Kind::Put).then_some(newest.0)
    }

    proptest! {
        #[test]
        fn every_readable_state_reads_the_same(
            mut readable in proptest::collection::btree_set(0u64..30, 1..5),
            versions in proptest::collection::btree_map(1u64..30, any::<bool>(), 0..20),
            deepest in any::<bool>(),
        ) {
            let versions: Versions = versions
                .into_iter()
                .rev()
                .map(|(seqno, put)| (seqno, if put { Kind::Put } else { Kind::Delete }))
                .collect();
            let readable: Vec<_> = std::mem::take(&mut readable).into_iter().collect();
            let kept = kept(&readable, &versions, deepest);
            let newest = *readable.last().unwrap();
            for at in readable.iter().copied().chain(newest..31) {
                prop_assert_eq!(seen(&kept, at), seen(&versions, at), "at {}", at);
            }
            let old = |versions: &Versions| versions.iter().filter(|(s, _)| *s <= newest).count();
            prop_assert!(old(&kept) <= readable.len(), "one entry a stripe");
        }
    }

    #[test]
    fn a_tombstone_stays_while_it_hides_something_deeper() {
        let versions = vec![(5, Kind::Delete), (3, Kind::Put)];
        assert_eq!(kept(&[9], &versions, false), [(5, Kind::Delete)]);
        assert_eq!(kept(&[9], &versions, true), []);
        assert_eq!(kept(&[4, 9], &versions, true), versions, "a snapshot sees what it hides");
    }
}
