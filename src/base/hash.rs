//! The hash whose output is stored on disk: XXH3, 64 bits. Its definition is frozen.

/// The hash of `bytes`.
#[inline]
pub(crate) fn hash64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The identity that checksums of file `number` of a database are bound to.
pub(crate) fn file_identity(database: u64, number: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&database.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    hash64(&bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn definition_is_frozen() {
        assert_eq!(super::hash64(b""), 0x2d06_8005_38d3_94c2);
        assert_ne!(super::file_identity(1, 2), super::file_identity(2, 1));
    }
}
