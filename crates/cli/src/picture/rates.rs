//! What a database did between two pictures.

use std::time::Duration;

use turbidite::Status;

/// Bytes and writes, in all or each second.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Rates {
    pub(crate) writes: u64,
    pub(crate) taken_bytes: u64,
    pub(crate) flushed_bytes: u64,
    pub(crate) compacted_bytes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

impl Rates {
    /// What was done since the database was opened; writes count since it was made.
    pub(crate) fn sums(status: &Status) -> Self {
        let work = |figure: fn(&turbidite::WorkStats) -> u64| {
            let all = status.keyspaces.iter().map(|keyspace| figure(&keyspace.work));
            all.fold(0, u64::saturating_add)
        };
        Self {
            writes: status.last_seqno,
            taken_bytes: status.taken_bytes,
            flushed_bytes: work(|work| work.flushed_bytes),
            compacted_bytes: work(|work| work.compaction_written_bytes),
            read_bytes: status.read_bytes,
            written_bytes: status.written_bytes,
        }
    }

    /// What was done each second from one picture to the next; `None` if they are not of one opening.
    pub(crate) fn between(before: &Status, now: &Status) -> Option<Self> {
        let time = now.open_for.checked_sub(before.open_for)?;
        if time < Duration::from_millis(1) || before.process != now.process {
            return None;
        }
        let (a, b) = (Self::sums(before), Self::sums(now));
        let rate = |figure: fn(&Self) -> u64| {
            (figure(&b).saturating_sub(figure(&a)) as f64 / time.as_secs_f64()) as u64
        };
        Some(Self {
            writes: rate(|sums| sums.writes),
            taken_bytes: rate(|sums| sums.taken_bytes),
            flushed_bytes: rate(|sums| sums.flushed_bytes),
            compacted_bytes: rate(|sums| sums.compacted_bytes),
            read_bytes: rate(|sums| sums.read_bytes),
            written_bytes: rate(|sums| sums.written_bytes),
        })
    }
}
