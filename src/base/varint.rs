//! Variable-length integers: seven bits a byte, lowest first, the top bit says that more follow
//! (LEB128). At most ten bytes for a `u64`.

/// Appends `value` to `out`.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number of bytes [`put`] appends for `value`.
pub(crate) fn len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Reads an integer from the front of `bytes` and moves `bytes` past it. `None` if the bytes end
/// early or the integer does not fit 64 bits.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        let part = u64::from(byte & 0x7f);
        if i == 9 && part > 1 {
            return None;
        }
        value |= part << (7 * i);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// Reads `n` bytes from the front of `bytes` and moves `bytes` past them.
#[inline]
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8], n: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(n).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Appends `bytes` with their length in front.
pub(crate) fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads bytes written by [`put_prefixed`].
#[inline]
pub(crate) fn take_prefixed<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let n = take(bytes)?;
    take_bytes(bytes, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), len(value));
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
            for cut in 0..out.len() {
                prop_assert_eq!(take(&mut &out[..cut]), None);
            }
        }
    }

    #[test]
    fn too_long_is_refused() {
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(take_prefixed(&mut &[5, 1, 2][..]), None);
    }
}
