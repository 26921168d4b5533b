//! How many operations one latency is the mean of.

use crate::run::job::{Act, Job};
use crate::tables::Row;

/// How many entries of a scan share one look at the clock.
const SCANNED: u32 = 64;

/// How many operations of a step share one latency: those of a batch, or of one look at the clock.
pub(crate) fn shared(row: &Row, step: &str) -> Option<u32> {
    let Job::Store { load, .. } = &row.job else { return None };
    let step = load.steps.iter().find(|known| known.name == step)?;
    Some(match step.act {
        Act::Scan | Act::Reverse => SCANNED,
        Act::Reopen => 1,
        Act::Ycsb(_) => load.latency_run,
        // The clock is looked at between batches only.
        Act::Put | Act::Get | Act::Miss | Act::Half | Act::Delete => {
            load.latency_run.max(1).next_multiple_of(step.batch.max(1))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{self, Scale};

    #[test]
    fn batches_and_looks_at_the_clock_share_latencies() {
        let of = |table, id: &str, step| {
            let rows = tables::table(table, Scale::Quick).unwrap().rows;
            shared(rows.iter().find(|row| row.id == id).unwrap(), step)
        };
        assert_eq!(of("peers", "rocksdb", "put"), Some(1));
        assert_eq!(of("peers", "rocksdb", "scan"), Some(64));
        assert_eq!(of("peers", "redb", "put"), Some(1000));
        assert_eq!(of("peers", "redb", "YCSB A"), Some(1));
        assert_eq!(of("scale", "1M/rocksdb", "put"), Some(16));
        assert_eq!(of("scale", "1M/redb", "put"), Some(1000));
        assert_eq!(of("files", "hash-pos/turbidite", "get 32"), Some(32));
        assert_eq!(of("files", "hash-pos/tkrzw", "get"), None);
    }
}
