//! What fuzzers do with the status of a database, which another process may have written.

use super::encoding;

/// A published status.
pub(crate) fn status(bytes: &[u8]) {
    let Some((stamp, status)) = encoding::decode(bytes) else { return };
    let again = encoding::encode(stamp, &status);
    assert_eq!(encoding::decode(&again), Some((stamp, status)));
}

/// Statuses as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::*;
    use crate::status::tests;

    pub(crate) fn statuses() -> Vec<Vec<u8>> {
        let full = tests::status();
        let mut empty = full.clone();
        (empty.keyspaces, empty.jobs) = Default::default();
        vec![encoding::encode((0, 0), &empty), encoding::encode((7, u64::MAX), &full)]
    }
}
