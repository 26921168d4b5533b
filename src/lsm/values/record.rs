//! The bytes of a value file.
//!
//! ```text
//! header | record | record | ...                   records lie end to end, up to the end of the file
//!
//! header     0  magic "TBD-VAL\n"
//!            8  format version u32
//!           12  zero u32
//!           16  identity of the keyspace u64
//!           24  number of the file u64
//!           32  28 zeros
//!           60  checksum u32 of bytes 0..60, bound to the file's identity and offset 0
//!
//! record     0  checksum u32 of all behind it, bound to the file's identity and the record's offset
//!            4  length of the value u32
//!            8  hash of the user key u64
//!           16  the value
//! ```
//! The hash is XXH3 of the key, so that a value does not pass for that of another key. Every byte of the file is covered by
//! a checksum, and the records can be walked over without the tables that refer to them.

use std::path::Path;

use crate::base::checksum;
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};

const MAGIC: [u8; 8] = *b"TBD-VAL\n";
const FORMAT_VERSION: u32 = 1;

/// The bytes of the file's header.
pub(super) const HEADER: usize = 64;
/// The bytes of a record in front of the value.
pub(super) const FRONT: usize = 16;

/// Bytes that are not what was written, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Damage(pub(super) &'static str);

/// Whose the file is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    /// The identity of the keyspace.
    pub(super) keyspace: u64,
    /// The number of the file.
    pub(super) id: u64,
    /// The identity of the file, which checksums are bound to.
    pub(super) file: u64,
}

/// The header of a file.
pub(super) fn header(owner: Owner) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&owner.keyspace.to_le_bytes());
    bytes[24..32].copy_from_slice(&owner.id.to_le_bytes());
    let sum = checksum::bound(owner.file, 0, &bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks the header of the file at `path`.
pub(super) fn check_header(bytes: &[u8], owner: Owner, path: &Path) -> Result<()> {
    let damaged = |what| Err(Error::corruption(path, 0, what));
    let Some(bytes) = bytes.first_chunk::<HEADER>() else {
        return damaged("the header is cut off");
    };
    if bytes[..8] != MAGIC {
        return damaged("the file does not begin like a value file");
    }
    if !checksum::matches(u32_at(bytes, 60), checksum::bound(owner.file, 0, &bytes[..60])) {
        return damaged("the header is damaged, or it is another file's");
    }
    let found = u32_at(bytes, 8);
    if found > FORMAT_VERSION {
        let (file, supported) = (path.to_path_buf(), FORMAT_VERSION);
        return Err(Error::NewerFormat { file, found, supported });
    }
    if *bytes != header(owner) {
        return damaged("the header says what cannot be");
    }
    Ok(())
}

/// The front of a record at `offset`, for a key with this hash. The length of the value must fit 32 bits.
pub(super) fn front(identity: u64, offset: u64, hash: u64, value: &[u8]) -> [u8; FRONT] {
    let mut bytes = [0; FRONT];
    bytes[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
    bytes[8..].copy_from_slice(&hash.to_le_bytes());
    let sum = sum_of(identity, offset, &bytes, value);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The value's length that the front of a record tells. It may be any.
pub(super) fn len_of(front: &[u8; FRONT]) -> u64 {
    u64::from(u32_at(front, 4))
}

/// Checks that `bytes` are one whole record, read from `offset`, and gives the hash of its key.
#[inline]
pub(super) fn check(bytes: &[u8], identity: u64, offset: u64) -> Result<u64, Damage> {
    let (front, value) = bytes.split_first_chunk::<FRONT>().ok_or(Damage("a record is cut off"))?;
    let is_whole = checksum::matches(u32_at(front, 0), sum_of(identity, offset, front, value));
    if !is_whole && !planted(Bug::IgnoreValueChecksum) {
        return Err(Damage("a checksum does not match"));
    }
    if len_of(front) != value.len() as u64 {
        return Err(Damage("a value has another length than its reference says"));
    }
    Ok(u64::from_le_bytes(*front[8..].first_chunk().expect("8 bytes")))
}

/// The checksum of a record: of its front behind the checksum, and its value.
#[inline]
fn sum_of(identity: u64, offset: u64, front: &[u8; FRONT], value: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum::bound(identity, offset, &front[4..]), value)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("4 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { keyspace: 5, id: 6, file: 7 };

    #[test]
    fn a_header_is_its_own_files_and_no_bit_may_differ() {
        let bytes = header(OWNER);
        let check = |bytes: &[u8], owner| check_header(bytes, owner, Path::new("v"));
        check(&bytes, OWNER).unwrap();
        for owner in
            [Owner { keyspace: 4, ..OWNER }, Owner { id: 4, ..OWNER }, Owner { file: 4, ..OWNER }]
        {
            check(&bytes, owner).unwrap_err();
        }
        for bit in 0..8 * HEADER {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            check(&bad, OWNER).unwrap_err();
        }
        (0..HEADER).for_each(|len| drop(check(&bytes[..len], OWNER).unwrap_err()));
        let mut newer = bytes;
        newer[8] = 2;
        let sum = checksum::bound(OWNER.file, 0, &newer[..60]);
        newer[60..].copy_from_slice(&sum.to_le_bytes());
        let error = check(&newer, OWNER).unwrap_err();
        assert!(matches!(error, Error::NewerFormat { found: 2, supported: 1, .. }), "{error}");
    }

    #[test]
    fn a_record_is_whole_and_in_its_place() {
        for value in [&b""[..], b"v", &[9; 5000]] {
            let bytes = [&front(7, 100, 3, value)[..], value].concat();
            assert_eq!(check(&bytes, 7, 100), Ok(3));
            assert!(check(&bytes, 8, 100).is_err() && check(&bytes, 7, 101).is_err());
            for at in 0..bytes.len().min(100) {
                let mut bad = bytes.clone();
                bad[at] ^= 0x20;
                assert!(check(&bad, 7, 100).is_err());
                assert!(check(&bytes[..at], 7, 100).is_err());
            }
            assert!(check(&[&bytes[..], b"x"].concat(), 7, 100).is_err());
        }
    }

    #[test]
    fn a_length_that_is_wrong_does_not_pass_with_a_right_checksum() {
        let mut bytes = [&front(7, 100, 3, b"value")[..], b"value"].concat();
        bytes[4] = 4;
        let front: [u8; FRONT] = *bytes.first_chunk().unwrap();
        let sum = sum_of(7, 100, &front, b"value");
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        let damage = check(&bytes, 7, 100).unwrap_err();
        assert_eq!(damage, Damage("a value has another length than its reference says"));
    }
}
