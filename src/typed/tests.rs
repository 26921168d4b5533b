//! Tests of the codecs: the bytes they make, that these have the order of the type and come back as they were, and that
//! other bytes are refused.

use std::cmp::{Ordering, Reverse};
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::buffer::Buffer;
use super::key::KeyReader;
use super::*;
use crate::base::Slice;

/// A whole key as bytes.
fn key_bytes<K: KeyCodec>(key: impl EncodeKey<K>) -> Vec<u8> {
    let mut out = KeyWriter::new();
    let lent = key.encoded(&mut out).to_vec();
    assert_eq!(KeyWriter::of::<K>(&key).as_ref(), lent, "however they are asked for");
    lent
}

fn value_bytes<V: ValueCodec>(value: impl EncodeValue<V>) -> Vec<u8> {
    let (mut out, mut written) = (Buffer::new(), Buffer::new());
    value.encode(&mut written).unwrap();
    let lent = value.encoded(&mut out).unwrap().to_vec();
    assert_eq!(*written, lent[..], "however they are asked for");
    lent
}

fn read_key<K: KeyCodec>(bytes: &[u8]) -> Result<K, DecodeError> {
    KeyReader::read(bytes)
}

// ---- the bytes ----

/// What is stored cannot change: these are the bytes that docs/format/typed.md describes.
#[test]
fn bytes_of_keys() {
    assert_eq!(key_bytes::<u8>(7), [7]);
    assert_eq!(key_bytes::<u32>(0x0102_0304), [1, 2, 3, 4]);
    assert_eq!(key_bytes::<i16>(-2), [0x7f, 0xfe]);
    assert_eq!(key_bytes::<i64>(1), [0x80, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(key_bytes::<i128>(i128::MIN), [0; 16]);
    assert_eq!(key_bytes::<f32>(1.0), [0xbf, 0x80, 0, 0]);
    assert_eq!(key_bytes::<f32>(-1.0), [0x40, 0x7f, 0xff, 0xff]);
    assert_eq!(key_bytes::<f64>(0.0), [0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(key_bytes::<f64>(-0.0), [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(key_bytes::<bool>(true), [1]);
    assert_eq!(key_bytes::<char>('\u{1f600}'), [0, 1, 0xf6, 0]);
    assert_eq!(key_bytes::<String>("a\0b"), b"a\0b");
    assert_eq!(key_bytes::<(String, u8)>(("a\0b", 9)), b"a\0\xffb\0\0\x09");
    assert_eq!(key_bytes::<(u8, String)>((9, "a\0b")), b"\x09a\0b");
    assert_eq!(key_bytes::<((Vec<u8>,), Slice)>(((b"",), b"\0")), b"\0\0\0");
    assert_eq!(key_bytes::<([u8; 3], u8)>((*b"a\0b", 9)), b"a\0b\x09");
    assert_eq!(key_bytes::<Option<u8>>(Some(5)), [1, 5]);
    assert_eq!(key_bytes::<Option<u8>>(None::<u8>), [0]);
    assert_eq!(key_bytes::<Reverse<u16>>(Reverse(0x0102)), [0xfe, 0xfd]);
    assert_eq!(key_bytes::<Reverse<String>>(Reverse("a")), [!b'a', 0xff, 0xff]);
    assert_eq!(key_bytes::<Reverse<Reverse<String>>>(Reverse(Reverse("a"))), b"a\0\0");
    assert_eq!(key_bytes::<()>(()), []);
    assert_eq!(key_bytes::<Ipv4Addr>(Ipv4Addr::new(10, 0, 0, 1)), [10, 0, 0, 1]);
    assert_eq!(key_bytes::<IpAddr>(IpAddr::from([10, 0, 0, 1])), [4, 10, 0, 0, 1]);
    assert_eq!(key_bytes::<IpAddr>(IpAddr::from(Ipv6Addr::LOCALHOST))[..2], [6, 0]);
    assert_eq!(key_bytes::<Duration>(Duration::new(1, 2)), [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    let before = UNIX_EPOCH - Duration::from_nanos(1);
    assert_eq!(key_bytes::<SystemTime>(before)[..9], [0x7f, 255, 255, 255, 255, 255, 255, 255, 59]);
}

#[test]
fn bytes_of_values() {
    assert_eq!(value_bytes::<u32>(0x0102_0304), [1, 2, 3, 4]);
    assert_eq!(value_bytes::<i16>(-2), [0xff, 0xfe]);
    assert_eq!(value_bytes::<f32>(-1.0), [0xbf, 0x80, 0, 0]);
    assert_eq!(value_bytes::<bool>(false), [0]);
    assert_eq!(value_bytes::<char>('a'), [0, 0, 0, b'a']);
    assert_eq!(value_bytes::<String>("a\0b"), b"a\0b");
    assert_eq!(value_bytes::<Slice>(b"a\0b"), b"a\0b");
    assert_eq!(value_bytes::<[u8; 2]>(*b"ab"), b"ab");
    assert_eq!(value_bytes::<()>(()), b"");
    assert_eq!(value_bytes::<Option<Vec<u8>>>(Some(b"ab")), b"\x01ab");
    assert_eq!(value_bytes::<Option<Vec<u8>>>(None::<&[u8]>), [0]);
}

#[test]
fn names() {
    assert_eq!(<(String, Option<u8>, Reverse<i64>)>::name(), "(str, option(u8), reverse(i64))");
    assert_eq!(
        <(f32, bool, char, [u8; 4], ()) as KeyCodec>::name(),
        "(f32, bool, char, [u8; 4], ())"
    );
    assert_eq!(<Vec<u8> as KeyCodec>::name(), <Slice as KeyCodec>::name());
    assert_eq!(<(IpAddr, SystemTime, Duration)>::name(), "(ip, time, duration)");
    assert_eq!(<Compressed<Option<String>>>::name(), "lz4(option(str))");
    #[cfg(feature = "serde")]
    assert_eq!(<Serde<(u8, String)>>::name(), "postcard");
}

// ---- order ----

/// Whether the bytes of `K` are in order and come back.
fn check_pair<K: KeyCodec + Debug>(a: &K, b: &K, order: Ordering) {
    let (bytes_of_a, bytes_of_b) = (key_bytes(a), key_bytes(b));
    assert_eq!(bytes_of_a.cmp(&bytes_of_b), order, "{a:?} {b:?} {bytes_of_a:x?} {bytes_of_b:x?}");
    let again = read_key::<K>(&bytes_of_a).unwrap();
    assert_eq!(key_bytes(&again), bytes_of_a, "{a:?} {again:?}");
}

/// The same alone, in front of others, behind others and turned round.
fn check_order<K>(a: K, b: K, order: impl Fn(&K, &K) -> Ordering)
where
    K: KeyCodec + Clone + Debug,
{
    let is = order(&a, &b);
    assert_eq!(order(&read_key(&key_bytes(&a)).unwrap(), &a), Ordering::Equal, "{a:?}");
    check_pair(&a, &b, is);
    check_pair(&Reverse(a.clone()), &Reverse(b.clone()), is.reverse());
    check_pair(&Some(a.clone()), &Some(b.clone()), is);
    check_pair(&None, &Some(b.clone()), Ordering::Less);
    for (x, y) in [(0, 0), (0, u8::MAX), (u8::MAX, 0)] {
        let then = is.then(x.cmp(&y));
        check_pair(&(a.clone(), x), &(b.clone(), y), then);
        check_pair(&(x, a.clone()), &(y, b.clone()), x.cmp(&y).then(is));
        check_pair(&Reverse((a.clone(), x)), &Reverse((b.clone(), y)), then.reverse());
        check_pair(
            &(Reverse(a.clone()), x),
            &(Reverse(b.clone()), y),
            is.reverse().then(x.cmp(&y)),
        );
        check_pair(&(Some(a.clone()), x), &(Some(b.clone()), y), then);
        check_pair(&((x, a.clone()), y), &((x, b.clone()), x), is.then(y.cmp(&x)));
        let longer = [0, x].map(char::from).into_iter().collect::<String>();
        check_pair(
            &(a.clone(), longer.clone()),
            &(b.clone(), String::new()),
            is.then(Ordering::Greater),
        );
        check_pair(
            &(longer.clone(), Reverse(Some(a.clone())), longer.clone()),
            &(longer.clone(), Reverse(Some(b.clone())), longer),
            is.reverse(),
        );
    }
}

/// Bytes of which the special ones are many, and short ones the beginning of others.
fn tricky_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0_u8, 1, b'a', 0xfe, 0xff]), 0..6)
}

fn tricky_text() -> impl Strategy<Value = String> {
    let chars = prop::sample::select(vec!['\0', '\u{1}', 'a', '\u{ff}', '\u{10ffff}']);
    prop::collection::vec(chars, 0..5).prop_map(|chars| chars.into_iter().collect())
}

fn a_time() -> impl Strategy<Value = SystemTime> {
    (-4_000_000_000_i64..4_000_000_000, 0..3_u32).prop_map(|(seconds, nanos)| {
        let distance = Duration::from_secs(seconds.unsigned_abs());
        let whole = if seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance };
        whole + Duration::from_nanos(u64::from(nanos) * 499_999_999)
    })
}

/// Numbers that are near each other or near an end.
macro_rules! numbers_are_ordered {
    ($($number:ident)*) => {$(
        #[test]
        fn $number() {
            let edges = [0, 1, 2, 127, 128, 255, $number::MIN, $number::MIN + 1, $number::MAX - 1, $number::MAX];
            for a in edges {
                for b in edges {
                    check_order(a as $number, b as $number, Ord::cmp);
                    assert_eq!(ValueCodec::decode(value_bytes(a).into()), Ok(a));
                }
            }
        }
    )*};
}

mod numbers {
    use super::*;

    #[test]
    fn u8() {
        for (a, b) in [(0, 0), (0, 1), (127, 128), (254, 255)] {
            check_order(a, b, u8::cmp);
            check_order(a as i8, b as i8, i8::cmp);
        }
    }

    numbers_are_ordered!(u16 u32 u64 u128 i16 i32 i64 i128);

    #[test]
    fn floats() {
        let nan = f64::NAN;
        let edges = [
            -nan,
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            f64::from_bits(1),
            1.0,
            f64::MAX,
            f64::INFINITY,
            nan,
            f64::from_bits(nan.to_bits() + 1),
        ];
        for (i, a) in edges.into_iter().enumerate() {
            for b in edges {
                check_order(a, b, f64::total_cmp);
                check_order(a as f32, b as f32, f32::total_cmp);
            }
            assert!(edges[..i].iter().all(|smaller| smaller.total_cmp(&a).is_lt()));
            let again = <f64 as ValueCodec>::decode(value_bytes(a).into()).unwrap();
            assert_eq!(again.to_bits(), a.to_bits());
        }
    }
}

#[test]
fn edges_of_time() {
    let distances = [0, 1, 999_999_999, 1_000_000_000, 1_000_000_001].map(Duration::from_nanos);
    let times = distances.iter().flat_map(|&by| [UNIX_EPOCH + by, UNIX_EPOCH - by]);
    // The ends of what the system has.
    let most = Duration::new(i64::MAX as u64, 999_999_999);
    let ends = [
        UNIX_EPOCH.checked_add(most),
        UNIX_EPOCH.checked_sub(Duration::from_secs(1 << 63)),
        UNIX_EPOCH.checked_sub(Duration::new(i64::MAX as u64, 1)),
    ];
    let times: Vec<SystemTime> = times.chain(ends.into_iter().flatten()).collect();
    assert!(times.len() > distances.len() * 2, "the ends are there");
    for &a in &times {
        for &b in &times {
            check_order(a, b, Ord::cmp);
        }
    }
    check_order(Duration::MAX, Duration::ZERO, Ord::cmp);
}

proptest! {
    #[test]
    fn wide_numbers(a: i128, b: i128, c: f64, d: f64, e: u64, f: u64) {
        check_order(a, b, Ord::cmp);
        check_order(c, d, f64::total_cmp);
        check_order(e, f, Ord::cmp);
        check_order(e as i32, f as i32, Ord::cmp);
    }

    #[test]
    fn text_and_bytes(a in tricky_text(), b in tricky_text(), c in tricky_bytes(), d in tricky_bytes()) {
        check_order(a.clone(), b.clone(), Ord::cmp);
        check_order(c.clone(), d.clone(), Ord::cmp);
        check_order(Slice::from(c.clone()), Slice::from(d.clone()), Ord::cmp);
        prop_assert_eq!(key_bytes::<String>(&*a), key_bytes::<String>(&a));
        prop_assert_eq!(key_bytes::<Vec<u8>>(&c[..]), key_bytes::<Slice>(&c));
        check_order((c.clone(), a.clone(), d.clone()), (d, b, c), Ord::cmp);
    }

    #[test]
    fn others(
        a in prop::array::uniform4(any::<u8>()),
        b in prop::array::uniform4(any::<u8>()),
        c: char,
        d: char,
        v6: u128,
        times in (a_time(), a_time()),
        seconds: u64,
    ) {
        check_order(a, b, Ord::cmp);
        check_order(c, d, Ord::cmp);
        check_order(Ipv4Addr::from(a), Ipv4Addr::from(b), Ord::cmp);
        check_order(IpAddr::from(a), IpAddr::from(Ipv6Addr::from(v6)), Ord::cmp);
        check_order(IpAddr::from(b), IpAddr::from(a), Ord::cmp);
        check_order(Ipv6Addr::from(v6), Ipv6Addr::from(u128::from(seconds)), Ord::cmp);
        check_order(times.0, times.1, Ord::cmp);
        check_order(Duration::new(seconds, 5), Duration::new(seconds, 4), Ord::cmp);
        check_order(c > d, a > b, Ord::cmp);
        check_order((), (), Ord::cmp);
    }

    #[test]
    fn nested(
        a: (Option<Option<bool>>, Option<Reverse<Option<u8>>>),
        b: (Option<Option<bool>>, Option<Reverse<Option<u8>>>),
        c in prop::option::of((tricky_text(), prop::option::of(tricky_bytes()))),
        d in prop::option::of((tricky_text(), prop::option::of(tricky_bytes()))),
    ) {
        check_order(a, b, Ord::cmp);
        check_order(c.clone(), d.clone(), Ord::cmp);
        check_order((Reverse(c.clone()), a), (Reverse(d.clone()), b), Ord::cmp);
        check_order(Reverse((c.clone(), Reverse(d.clone()))), Reverse((d, Reverse(c))), Ord::cmp);
    }

    #[test]
    fn long_tuples(
        a: (u8, i8, bool, u16),
        b: (u8, i8, bool, u16),
        text in prop::array::uniform4(tricky_text()),
        other in prop::array::uniform4(tricky_text()),
    ) {
        let eight = |(a, b, c, d): (u8, i8, bool, u16), [e, f, g, h]: [String; 4]| (e, a, f, b, g, c, h, d);
        check_order(eight(a, text.clone()), eight(b, other.clone()), Ord::cmp);
        check_order(eight(a, text.clone()), eight(b, text.clone()), Ord::cmp);
        let five = |(a, b, _, d): (u8, i8, bool, u16), [e, f, _, _]: [String; 4]| (a, e, b, f, d);
        check_order((five(a, text.clone()),), (five(a, other),), Ord::cmp);
    }
}

// ---- prefixes ----

proptest! {
    /// A key begins with the bytes of a prefix if its first parts are the prefix, and not otherwise.
    #[test]
    fn prefixes(a in tricky_text(), b in tricky_bytes(), c: bool, other in (tricky_text(), tricky_bytes())) {
        type Key = (String, Reverse<Vec<u8>>, bool, String);
        let key = key_bytes::<Key>((&a, Reverse(&b), c, "\0"));
        let begins = |prefix: &dyn KeyPrefix<Key>| key.starts_with(record::prefix(prefix).as_ref());
        prop_assert!(begins(&(&a,)) && begins(&(&a, Reverse(&b))) && begins(&(&a, Reverse(&b), c)));
        prop_assert!(!begins(&(&a, Reverse(&b), !c)));
        prop_assert_eq!(begins(&(&other.0,)), other.0 == a);
        prop_assert_eq!(begins(&(&other.0, Reverse(&other.1))), other == (a.clone(), b.clone()));
        let starts = |text: &str, prefix: &str| {
            key_bytes::<String>(text).starts_with(record::prefix::<String>(prefix).as_ref())
        };
        prop_assert_eq!(starts(&a, &other.0), a.starts_with(&*other.0));
        prop_assert!(key_bytes::<Vec<u8>>(&b).starts_with(record::prefix::<Slice>(&b[..]).as_ref()));
    }
}

// ---- other bytes ----

/// Bytes either make a key, and then the very same, or are refused.
fn check_key<K: KeyCodec>(bytes: &[u8]) {
    if let Ok(key) = read_key::<K>(bytes) {
        assert_eq!(key_bytes(&key), bytes);
    }
}

fn check_value<V: ValueCodec>(bytes: &[u8]) {
    if let Ok(value) = V::decode(bytes.into()) {
        assert_eq!(value_bytes(&value), bytes);
    }
}

fn check_bytes(bytes: &[u8]) {
    check_key::<u32>(bytes);
    check_key::<f64>(bytes);
    check_key::<char>(bytes);
    check_key::<(bool, Reverse<bool>)>(bytes);
    check_key::<String>(bytes);
    check_key::<Vec<u8>>(bytes);
    check_key::<(Slice, [u8; 2])>(bytes);
    check_key::<(String, Vec<u8>, String)>(bytes);
    check_key::<Reverse<(Vec<u8>, Reverse<String>)>>(bytes);
    check_key::<Option<(Option<Vec<u8>>, Option<u8>)>>(bytes);
    check_key::<IpAddr>(bytes);
    check_key::<(Reverse<IpAddr>, ())>(bytes);
    check_key::<Duration>(bytes);
    check_key::<SystemTime>(bytes);
    check_value::<u64>(bytes);
    check_value::<bool>(bytes);
    check_value::<char>(bytes);
    check_value::<String>(bytes);
    check_value::<Option<Option<Slice>>>(bytes);
    check_value::<Option<[u8; 3]>>(bytes);
    check_value::<()>(bytes);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
        check_bytes(&bytes);
    }

    #[test]
    fn tricky_bytes_are_read_or_refused(
        parts in prop::collection::vec((tricky_bytes(), prop::sample::select(vec![4_u8, 6, 0, 1])), 0..5),
    ) {
        let bytes: Vec<u8> = parts.into_iter().flat_map(|(bytes, more)| [bytes, vec![more]].concat()).collect();
        check_bytes(&bytes);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let refused = |result: Result<(), DecodeError>, what: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    refused(read_key::<u64>(&[1, 2, 3]).map(drop), "5 bytes of it are missing");
    refused(read_key::<u64>(&[0; 9]).map(drop), "1 bytes follow it");
    refused(read_key::<(String, u8)>(b"abc").map(drop), "the end of a part is missing");
    refused(read_key::<(String, u8)>(b"abc\0").map(drop), "1 bytes of it are missing");
    refused(read_key::<(String, u8)>(b"abc\0\x01").map(drop), "neither escaped nor its end");
    refused(read_key::<String>(&[0xff]).map(drop), "not UTF-8");
    refused(read_key::<Option<u8>>(&[2]).map(drop), "nothing");
    refused(read_key::<Reverse<bool>>(&[0]).map(drop), "neither 0 nor 1");
    refused(read_key::<char>(&[0, 0, 0xd8, 0]).map(drop), "no code point");
    refused(read_key::<Duration>(&[255; 12]).map(drop), "nanoseconds");
    refused(
        <u16 as ValueCodec>::decode(b"abc"[..].into()).map(drop),
        "should be 2 bytes, and there are 3",
    );
    refused(<() as ValueCodec>::decode(b"abc"[..].into()), "and there are 3");
}
