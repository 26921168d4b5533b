//! CRC-32C (Castagnoli), computed by the processor where it can.
//!
//! Every checksum on disk is *bound*: it covers, before the bytes themselves, the identity of the file
//! and the offset of the bytes in it, so that a block that is whole but stale, misplaced or from another
//! file does not pass.

use crate::planted::{Bug, planted};

/// The checksum of `bytes` stored at `offset` of the file named by `identity`.
#[inline]
pub(crate) fn bound(identity: u64, offset: u64, bytes: &[u8]) -> u32 {
    let offset = if planted(Bug::UnboundChecksum) { 0 } else { offset };
    let mut place = [0; 16];
    place[..8].copy_from_slice(&identity.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value_and_binding() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        let sum = bound(1, 2, b"bytes");
        assert_ne!(sum, bound(1, 3, b"bytes"));
        assert_ne!(sum, bound(2, 2, b"bytes"));
        assert_ne!(sum, bound(1, 2, b"byteS"));
    }
}
