//! The range tombstones of a table, as [fragments](Fragments).
//!
//! ```text
//! count of fragments varint, then of each, ascending:
//!     length varint, start | length + 1 varint, the key before which it ends; or 0 if it has no end
//!     count of numbers varint | the first varint | of each other, how much less it is than the one before, varint
//! ```
//! Fragments do not overlap. The numbers are those of the tombstones that cover the fragment, newest first. Two that meet
//! have different numbers. There is no such part if there are no fragments.
//!
//! A table has no tombstone for keys outside of the range that it is known by: it is the only one of its run where those in
//! between are looked for, and its range of keys holds all that its fragments cover.

use std::sync::Arc;

use super::Damage;
use crate::base::key::MAX_SEQNO;
use crate::base::{End, Fragments, Seqno, varint};
use crate::options::MAX_KEY_LEN;

/// The largest key below `end`; if there is none, `end` itself.
pub(crate) fn last_below(end: &End) -> Vec<u8> {
    match end.key() {
        Some([key @ .., 0]) | Some(key) => key.to_vec(),
        None => vec![0xff; MAX_KEY_LEN],
    }
}

/// A key that follows directly behind another one: `key`, if it does, or one below it with hardly any key in between.
pub(crate) fn follower_below(key: &[u8]) -> Vec<u8> {
    let [front @ .., last @ 1..=u8::MAX] = key else { return key.to_vec() };
    let room = MAX_KEY_LEN.saturating_sub(key.len()).min(8);
    let mut follower = [front, &[last - 1]].concat();
    follower.resize(key.len() + room, 0xff);
    follower.push(0);
    follower
}

pub(super) fn encode(fragments: &Fragments) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, fragments.len() as u64);
    for fragment in fragments.iter() {
        varint::put_prefixed(&mut out, fragment.start);
        varint::put(&mut out, fragment.end.key().map_or(0, |end| end.len() as u64 + 1));
        out.extend_from_slice(fragment.end.key().unwrap_or_default());
        varint::put(&mut out, fragment.seqnos.len() as u64);
        varint::put(&mut out, fragment.seqnos[0]);
        for pair in fragment.seqnos.windows(2) {
            varint::put(&mut out, pair[0] - pair[1]);
        }
    }
    out
}

/// Reads what [`encode`] made.
pub(super) fn decode(mut bytes: &[u8]) -> Result<Fragments, Damage> {
    take(&mut bytes)
        .filter(|fragments| bytes.is_empty() && !fragments.is_empty())
        .ok_or(Damage("the range tombstones are malformed"))
}

fn take(bytes: &mut &[u8]) -> Option<Fragments> {
    let mut fragments = Fragments::default();
    let mut last = End::new(Some(&[]));
    let mut numbers = Vec::new();
    for count in 1..=varint::take(bytes)? {
        let start: Arc<[u8]> = varint::take_prefixed(bytes)?.into();
        let end = match varint::take(bytes)?.checked_sub(1) {
            Some(len) => {
                let (end, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
                *bytes = rest;
                End::Before(end.into())
            }
            None => End::Never,
        };
        take_numbers(bytes, &mut numbers)?;
        if last.is_above(&start) || !end.is_above(&start) {
            return None;
        }
        fragments.push(&start, &end, &numbers);
        if fragments.len() as u64 != count {
            return None;
        }
        last = end;
    }
    Some(fragments)
}

fn take_numbers(bytes: &mut &[u8], numbers: &mut Vec<Seqno>) -> Option<()> {
    numbers.clear();
    let count = varint::take(bytes)?;
    let mut number = varint::take(bytes)?;
    if count == 0 || number > MAX_SEQNO {
        return None;
    }
    for at in 0..count {
        if at > 0 {
            number = number.checked_sub(Some(varint::take(bytes)?).filter(|&less| less > 0)?)?;
        }
        numbers.push(number);
    }
    (number > 0).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::ranges::sample;

    proptest! {
        #[test]
        fn what_is_encoded_comes_back_and_nothing_else_does(
            tombstones in sample::tombstones(8),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let fragments = Fragments::of(&tombstones, |covering, kept| kept.extend(covering.iter().rev()));
            let bytes = encode(&fragments);
            prop_assert_eq!(decode(&bytes).is_ok(), !fragments.is_empty());
            if fragments.is_empty() {
                return Ok(());
            }
            prop_assert_eq!(decode(&bytes).unwrap(), fragments);
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut]).is_err());
            }
            let mut changed = bytes.clone();
            changed[at.index(bytes.len())] = byte;
            if let Ok(other) = decode(&changed) {
                prop_assert_eq!(encode(&other), changed, "there is one way to say it");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let fragment = |start: &[u8], end: u8, rest: &[u8]| {
            let end: &[u8] = if end == 0 { &[0] } else { &[2, end] };
            [&[start.len() as u8], start, end, rest].concat()
        };
        let table = |fragments: &[Vec<u8>]| {
            decode(&[&[fragments.len() as u8][..], &fragments.concat()].concat()).is_ok()
        };
        let one = || fragment(b"b", b'd', &[2, 9, 2]);
        assert!(table(&[one()]) && table(&[one(), fragment(b"d", 0, &[1, 9])]));
        assert!(!table(&[one(), fragment(b"d", b'e', &[2, 9, 2])]), "they are one");
        assert!(!table(&[one(), fragment(b"c", b'e', &[1, 9])]), "they overlap");
        assert!(
            !table(&[fragment(b"b", 0, &[1, 9]), fragment(b"d", b'e', &[1, 8])]),
            "there is no end"
        );
        assert!(
            !table(&[fragment(b"d", b'd', &[1, 9])]) && !table(&[fragment(b"e", b'd', &[1, 9])])
        );
        for numbers in [&[0][..], &[1, 0], &[2, 9, 0], &[2, 9, 9], &[2, 9, 10]] {
            assert!(!table(&[fragment(b"b", b'd', numbers)]), "{numbers:?}");
        }
        let most = |number: u64| {
            let mut numbers = vec![1];
            varint::put(&mut numbers, number);
            table(&[fragment(b"b", b'd', &numbers)])
        };
        assert!(most(MAX_SEQNO) && !most(MAX_SEQNO + 1) && !most(u64::MAX));
        assert!(!table(&[]));
    }

    #[test]
    fn followers_have_a_largest_key_below_them() {
        let keys: [&[u8]; 7] =
            [b"", b"b", b"a\x01", b"a\0", b"\x01", &[7; MAX_KEY_LEN], &[7; MAX_KEY_LEN - 1]];
        for key in keys {
            let follower = follower_below(key);
            assert!(*follower <= *key && follower.len() <= MAX_KEY_LEN + 1);
            assert_eq!(follower_below(&follower), follower, "it stays where it is");
            if !key.is_empty() {
                let before = last_below(&End::new(Some(&follower)));
                assert_eq!(End::behind(&before).key(), Some(&follower[..]));
            }
        }
        assert_eq!(follower_below(b"ab"), b"aa\xff\xff\xff\xff\xff\xff\xff\xff\0");
        assert_eq!(follower_below(b"a\0"), b"a\0");
    }

    #[test]
    fn the_last_key_is_the_largest_below_the_end() {
        let last = |end: Option<&[u8]>| last_below(&End::new(end));
        assert_eq!(last(Some(b"ab\0")), b"ab");
        assert_eq!(last(Some(b"ab")), b"ab", "there is none");
        assert_eq!(last(None), [0xff; MAX_KEY_LEN]);
        assert_eq!(last_below(&End::behind(b"x\0")), b"x\0");
    }
}
