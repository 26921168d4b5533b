//! What stands in a table in the place of a value that is kept apart.
//!
//! ```text
//! number of the value file varint | offset of the record varint | length of the value varint
//! ```

use super::record::{FRONT, HEADER};
use crate::base::varint;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reference {
    /// The number of the value file.
    pub(super) file: u64,
    /// Where its record begins there.
    pub(super) offset: u64,
    /// The bytes of the value itself.
    pub(super) len: u32,
}

impl Reference {
    /// Writes it in the place of what is in `out`.
    pub(super) fn encode_into(&self, out: &mut Vec<u8>) {
        out.clear();
        varint::put(out, self.file);
        varint::put(out, self.offset);
        varint::put(out, u64::from(self.len));
    }

    /// `None` if it cannot be one.
    #[inline]
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let (file, offset) = (varint::take(bytes)?, varint::take(bytes)?);
        let len = u32::try_from(varint::take(bytes)?).ok()?;
        (bytes.is_empty() && offset >= HEADER as u64).then_some(Self { file, offset, len })
    }

    /// The bytes of its record.
    pub(super) fn record_len(&self) -> u64 {
        FRONT as u64 + u64::from(self.len)
    }

    /// Where its record ends, if a file can be so long.
    pub(super) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.record_len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_comes_back_and_no_part_of_it_passes(
            file in any::<u64>(),
            offset in HEADER as u64..,
            len in any::<u32>(),
        ) {
            let reference = Reference { file, offset, len };
            let mut bytes = b"before".to_vec();
            reference.encode_into(&mut bytes);
            prop_assert!(bytes.len() <= 25);
            prop_assert_eq!(Reference::decode(&bytes), Some(reference));
            prop_assert!((0..bytes.len()).all(|len| Reference::decode(&bytes[..len]).is_none()));
            bytes.push(0);
            prop_assert_eq!(Reference::decode(&bytes), None);
        }

        #[test]
        fn any_bytes_are_refused_or_make_sense(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            if let Some(reference) = Reference::decode(&bytes) {
                prop_assert!(reference.offset >= HEADER as u64);
                prop_assert!(reference.end().is_none_or(|end| end > reference.offset));
            }
        }
    }

    #[test]
    fn no_value_lies_in_the_header() {
        let mut bytes = Vec::new();
        Reference { file: 1, offset: HEADER as u64 - 1, len: 1 }.encode_into(&mut bytes);
        assert_eq!(Reference::decode(&bytes), None);
    }
}
