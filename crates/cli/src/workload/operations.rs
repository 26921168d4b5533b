//! The keys and values of a phase, laid out in the order in which they are used.

use std::io::Write;

/// Writes number `number` as a key of `size` decimal digits behind `keys`.
pub(super) fn push_key(keys: &mut Vec<u8>, number: u64, size: usize) {
    write!(keys, "{number:0size$}").expect("writing to a vector");
}

/// The key of a stored record: an even number.
pub(super) fn present(record: u32) -> u64 {
    2 * u64::from(record)
}

/// The key behind that of a record, which is not stored: an odd number.
pub(super) fn absent(record: u32) -> u64 {
    present(record) + 1
}

/// One key, and where its value starts in the pool, for every operation.
pub(super) struct Operations {
    keys: Vec<u8>,
    key_size: usize,
    starts: Vec<u32>,
}

impl Operations {
    /// An operation for each of `records`, with the key `number` and the value `start` gives for it.
    pub(super) fn new(
        records: &[u32],
        key_size: usize,
        number: impl Fn(u32) -> u64,
        start: impl Fn(u32) -> u32,
    ) -> Self {
        let mut keys = Vec::with_capacity(records.len() * key_size);
        records.iter().for_each(|&record| push_key(&mut keys, number(record), key_size));
        Self { keys, key_size, starts: records.iter().map(|&record| start(record)).collect() }
    }

    pub(super) fn key(&self, i: usize) -> &[u8] {
        &self.keys[i * self.key_size..][..self.key_size]
    }

    pub(super) fn start(&self, i: usize) -> u32 {
        self.starts[i]
    }
}
