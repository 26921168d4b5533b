//! The keys and values of a phase, laid out in the order in which they are used.

use std::io::Write;

/// Writes number `number` as a key of `size` decimal digits behind `keys`.
pub fn push_key(keys: &mut Vec<u8>, number: u64, size: usize) {
    write!(keys, "{number:0size$}").expect("writing to a vector");
}

/// One key, and what goes with it, for every operation.
pub struct Operations<T> {
    keys: Vec<u8>,
    key_size: usize,
    payloads: Vec<T>,
}

impl<T: Copy> Operations<T> {
    /// Operations with the keys that `numbers` stand for, of `key_size` bytes, at least 1.
    pub fn new(
        numbers: impl ExactSizeIterator<Item = u64>,
        key_size: usize,
        payloads: Vec<T>,
    ) -> Self {
        Self::with(numbers, key_size, payloads, |keys, number| push_key(keys, number, key_size))
    }

    /// The same with keys that `push` writes behind others, each of `key_size` bytes.
    pub fn with(
        numbers: impl ExactSizeIterator<Item = u64>,
        key_size: usize,
        payloads: Vec<T>,
        mut push: impl FnMut(&mut Vec<u8>, u64),
    ) -> Self {
        let mut keys = Vec::with_capacity(numbers.len() * key_size);
        numbers.for_each(|number| push(&mut keys, number));
        Self { keys, key_size, payloads }
    }

    /// The operations of `range`.
    pub fn part(&self, range: std::ops::Range<usize>) -> Part<'_, T> {
        let keys = &self.keys[range.start * self.key_size..range.end * self.key_size];
        Part { keys, key_size: self.key_size, payloads: &self.payloads[range] }
    }
}

/// Operations that follow one another.
#[derive(Clone, Copy)]
pub struct Part<'a, T> {
    keys: &'a [u8],
    key_size: usize,
    payloads: &'a [T],
}

impl<'a, T: Copy> Part<'a, T> {
    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.payloads.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.payloads.is_empty()
    }

    /// The keys.
    pub fn keys(self) -> impl Iterator<Item = &'a [u8]> {
        self.keys.chunks_exact(self.key_size)
    }

    /// The keys, each with what goes with it.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], T)> {
        self.keys().zip(self.payloads.iter().copied())
    }

    /// Groups of `size` operations, the last one of those that are left.
    pub fn groups(self, size: usize) -> impl Iterator<Item = Self> {
        let keys = self.keys.chunks(size * self.key_size);
        let groups = keys.zip(self.payloads.chunks(size));
        groups.map(move |(keys, payloads)| Self { keys, payloads, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_groups_keep_keys_and_payloads_together() {
        let operations =
            Operations::new((0..10_u32).map(|i| u64::from(3 * i)), 4, (0..10).collect());
        let part = operations.part(2..9);
        let groups: Vec<Vec<_>> = part.groups(3).map(|group| group.iter().collect()).collect();
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
        assert!(groups.into_iter().flatten().eq(part.iter()));
        assert_eq!(part.iter().next(), Some((&b"0006"[..], 2)));
        assert_eq!((part.len(), part.keys().last()), (7, Some(&b"0024"[..])));
    }
}
