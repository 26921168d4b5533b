//! Keys of a load, as bytes.

use turbidite_workload::{Operations, push_key};

use super::job::Keys;

/// Makes `key` the key that `number` stands for.
#[inline]
pub(super) fn push(key: &mut Vec<u8>, keys: Keys, number: u64) {
    key.clear();
    append(key, keys, number);
}

fn append(bytes: &mut Vec<u8>, keys: Keys, number: u64) {
    match keys {
        Keys::Digits(digits) => push_key(bytes, number, digits as usize),
        Keys::Binary => bytes.extend_from_slice(&number.to_be_bytes()),
    }
}

/// The number that `key` stands for; `None` if it is the key of none.
pub(super) fn number(keys: Keys, key: &[u8]) -> Option<u64> {
    match keys {
        Keys::Digits(_) => std::str::from_utf8(key).ok()?.parse().ok(),
        Keys::Binary => Some(u64::from_be_bytes(key.try_into().ok()?)),
    }
}

/// Operations with the keys that `numbers` stand for.
pub(super) fn operations<T: Copy>(
    keys: Keys,
    numbers: impl ExactSizeIterator<Item = u64>,
    payloads: Vec<T>,
) -> Operations<T> {
    Operations::with(numbers, keys.size(), payloads, |bytes, number| append(bytes, keys, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_their_numbers() {
        for keys in [Keys::Digits(16), Keys::Digits(8), Keys::Binary] {
            for of in [0, 7, 12_345_678] {
                let mut key = Vec::new();
                push(&mut key, keys, of);
                assert_eq!(number(keys, &key), Some(of));
            }
            assert_eq!(number(keys, b"none"), None);
        }
    }
}
