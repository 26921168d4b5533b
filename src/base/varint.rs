//! Variable-length integers: seven bits a byte, lowest first, the top bit says that more follow
//! (LEB128). At most ten bytes for a `u64`, and no more than it needs: there is one way to write each integer.

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
/// early, the integer does not fit 64 bits, or fewer bytes would have said it.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    take_long(bytes)
}

/// Reads an integer from `bytes` at `at` and moves `at` past it, as [`take`] does.
#[inline]
pub(crate) fn take_at(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let &first = bytes.get(*at)?;
    if first < 0x80 {
        *at += 1;
        return Some(u64::from(first));
    }
    let (value, len) = long(&bytes[*at..])?;
    *at += len;
    Some(value)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let (value, len) = long(bytes)?;
    *bytes = &bytes[len..];
    Some(value)
}

/// The integer of two bytes or more at the front of `bytes`, and its length.
#[inline]
fn long(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = bytes.first_chunk().and_then(|front| take_word(u64::from_le_bytes(*front)));
    let (value, len) = word.or_else(|| byte_by_byte(bytes))?;
    (value >> (7 * (len - 1)) > 0).then_some((value, len))
}

fn byte_by_byte(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        let part = u64::from(byte & 0x7f);
        if i == 9 && part > 1 {
            return None;
        }
        value |= part << (7 * i);
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

/// The integer at the front of eight bytes and its length, if it ends there: all groups of seven bits at once.
#[inline]
fn take_word(word: u64) -> Option<(u64, usize)> {
    const MORE: u64 = 0x8080_8080_8080_8080;
    let ends = !word & MORE;
    if ends == 0 {
        return None;
    }
    let len = ends.trailing_zeros() as usize / 8 + 1;
    // What is in front of the first end, without the top bits.
    let bytes = word & (ends ^ (ends - 1)) & !MORE;
    let pairs = bytes & 0x007f_007f_007f_007f | (bytes & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    Some((fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4, len))
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
            for behind in [&[][..], &[0xff; 9], &[0; 9]] {
                let bytes = [&out, behind].concat();
                let mut rest = &bytes[..];
                prop_assert_eq!(take(&mut rest), Some(value));
                prop_assert_eq!(rest, behind);
                let (bytes, mut at) = ([&[0xff], &bytes[..]].concat(), 1);
                prop_assert_eq!(take_at(&bytes, &mut at), Some(value));
                prop_assert_eq!(&bytes[at..], behind);
            }
            for cut in 0..out.len() {
                prop_assert_eq!(take(&mut &out[..cut]), None);
                prop_assert_eq!(take_at(&out[..cut], &mut 0), None);
            }
        }

        #[test]
        fn there_is_one_way_to_say_it(bytes in prop::collection::vec(prop_oneof![Just(0), Just(0x80), any::<u8>()], 12)) {
            let mut rest = &bytes[..];
            let mut at = 0;
            let value = take(&mut rest);
            prop_assert_eq!(take_at(&bytes, &mut at), value);
            if let Some(value) = value {
                let mut out = Vec::new();
                put(&mut out, value);
                prop_assert_eq!(&bytes[..at], &out[..]);
                prop_assert_eq!(&bytes[at..], rest);
            }
        }
    }

    #[test]
    fn longer_than_needed_is_refused() {
        for len in 2..=10 {
            for behind in [0, 12] {
                let mut bytes = vec![0x81; len - 1];
                bytes.resize(len + behind, 0);
                assert_eq!(take(&mut &bytes[..]), None, "{bytes:?}");
                assert_eq!(take_at(&bytes, &mut 0), None, "{bytes:?}");
            }
        }
    }

    #[test]
    fn too_long_is_refused() {
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(take_prefixed(&mut &[5, 1, 2][..]), None);
    }
}
