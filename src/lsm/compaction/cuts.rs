//! Where one merge is cut into parts, which different threads may do: between user keys, so that all versions of a key are in
//! one part, and so that about as many bytes are read for each.
//!
//! A part begins with the key that follows directly behind one, so that range tombstones may be cut there: those in front of it
//! end with a key.
//!
//! Where the bytes of a table lie is known from its index, or, if its keys are not in memory, from its largest key.

use std::sync::Arc;

use crate::error::Result;
use crate::lsm::version::TableFile;
use crate::options::MAX_KEY_LEN;
use crate::sync::much;

/// So many keys of each part are looked at.
const SAMPLES: u64 = 16;
/// A part is as large as so many tables, at least: the last table of each has less than its size.
const TABLES: u64 = 4;
/// In simulations it may be this share of one.
const SHARE_OF_TABLE: u64 = 32;
/// So many parts for each thread: those who begin late find something to do.
const ROUNDS: u64 = 2;

/// The keys at which a merge of `inputs` into tables of `table_bytes` is cut for so many threads: each is the first of a part.
/// None if it is not worth it. Each ends with a zero and is as long as a key may be, at most.
pub(crate) fn cuts(
    inputs: &[Arc<TableFile>],
    table_bytes: u64,
    threads: usize,
) -> Result<Vec<Vec<u8>>> {
    let total = inputs.iter().map(|table| table.meta.len).fold(0, u64::saturating_add);
    let most = if threads > 1 { ROUNDS * threads as u64 } else { 1 };
    let least = much(table_bytes.saturating_mul(TABLES), table_bytes / SHARE_OF_TABLE);
    let parts = (total / least.max(1)).min(most);
    if parts < 2 {
        return Ok(Vec::new());
    }
    let each = total / parts / SAMPLES;
    let mut samples = Vec::new();
    for input in inputs {
        let found = match input.meta.len > each {
            true => input.table()?.samples(each),
            false => Vec::new(),
        };
        match found.is_empty() {
            true => samples.push((input.meta.largest.clone(), input.meta.len)),
            false => samples.extend(found),
        }
    }
    let cuts = divide(samples, parts).into_iter().filter(|key| key.len() < MAX_KEY_LEN);
    Ok(cuts.map(|key| [key, vec![0]].concat()).collect())
}

/// The keys that end each `parts`th part of all bytes, as far as samples of keys, each with the bytes in front of it, tell.
fn divide(mut samples: Vec<(Vec<u8>, u64)>, parts: u64) -> Vec<Vec<u8>> {
    samples.sort();
    let total: u128 = samples.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    let (mut sum, mut part) = (0, 1);
    for (key, bytes) in samples {
        sum += u128::from(bytes);
        let passed = (sum * u128::from(parts)).checked_div(total).unwrap_or(0);
        if passed >= part && sum < total && cuts.last() != Some(&key) {
            cuts.push(key);
            part = passed + 1;
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(bytes: &[u64]) -> Vec<(Vec<u8>, u64)> {
        bytes.iter().enumerate().map(|(key, &bytes)| (vec![key as u8], bytes)).collect()
    }

    #[test]
    fn parts_have_about_as_many_bytes() {
        assert_eq!(divide(samples(&[10; 8]), 4), [[1], [3], [5]]);
        assert_eq!(divide(samples(&[10; 9]), 2), [[4]]);
        assert_eq!(divide(samples(&[70, 10, 10, 10]), 4), [[0], [1]], "some keys are worth more");
        assert_eq!(divide(samples(&[1, 1, 98]), 4), [[0_u8; 1]; 0]);
        assert!(divide(Vec::new(), 4).is_empty());
    }

    #[test]
    fn nothing_is_cut_twice_at_a_key() {
        let mut twice = samples(&[10; 4]);
        twice.extend(samples(&[10; 4]));
        assert_eq!(divide(twice, 8), [[0], [1], [2], [3]]);
    }
}
