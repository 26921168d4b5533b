//! How a part of a table (a data block, the index, the filter, the properties) stands in the file.
//!
//! ```text
//! bytes | codec u8 | crc32c u32        the checksum covers the bytes and the codec, and is bound to
//!                                      the table's identity and the offset of the bytes
//! ```

use super::Damage;
use crate::base::checksum;

/// The bytes behind the part's own.
pub(super) const TRAILER: usize = 5;

/// The bytes stand as they are.
const CODEC_NONE: u8 = 0;

/// Appends to a part, the whole of `part`, what makes it a stored one at `offset`.
pub(super) fn seal(part: &mut Vec<u8>, identity: u64, offset: u64) {
    part.push(CODEC_NONE);
    let sum = checksum::bound(identity, offset, part);
    part.extend_from_slice(&sum.to_le_bytes());
}

/// The part's own bytes of a stored part.
#[inline]
pub(super) fn content(stored: &[u8]) -> Result<&[u8], Damage> {
    let len = stored.len().checked_sub(TRAILER).ok_or(Damage("a part is cut off"))?;
    if stored[len] != CODEC_NONE {
        return Err(Damage("unknown codec"));
    }
    Ok(&stored[..len])
}

/// Checks a stored part, read from `offset`, against its checksum.
pub(super) fn check(stored: &[u8], identity: u64, offset: u64) -> Result<(), Damage> {
    let Some((covered, sum)) = stored.split_last_chunk::<4>() else {
        return Err(Damage("a part is cut off"));
    };
    if u32::from_le_bytes(*sum) != checksum::bound(identity, offset, covered) {
        return Err(Damage("a checksum does not match"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_and_nothing_else_does() {
        let mut part = b"bytes".to_vec();
        seal(&mut part, 7, 100);
        check(&part, 7, 100).expect("whole");
        assert_eq!(content(&part), Ok(&b"bytes"[..]));
        assert!(check(&part, 8, 100).is_err());
        assert!(check(&part, 7, 101).is_err());
        for i in 0..part.len() {
            let mut bad = part.clone();
            bad[i] ^= 1;
            assert!(check(&bad, 7, 100).is_err());
            assert!(check(&part[..i], 7, 100).is_err());
        }
        part[5] = 1;
        assert_eq!(content(&part), Err(Damage("unknown codec")));
        assert!(content(&part[..4]).is_err());
    }
}
