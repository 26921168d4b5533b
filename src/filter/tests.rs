//! All kinds of filters: no false negatives, as few false positives as the theory says, and bytes of any content.

use proptest::prelude::*;

use super::*;
use crate::base::hash::hash64;
use crate::base::rng::Rng;

const KINDS: [FilterKind; 3] = [FilterKind::Bloom, FilterKind::BlockedBloom, FilterKind::Ribbon];

fn hash(key: u64) -> u64 {
    hash64(&key.to_le_bytes())
}

/// A filter of the keys below `keys`, each added twice.
fn encoded(kind: FilterKind, bits: u32, keys: u64) -> Vec<u8> {
    let mut builder = FilterBuilder::new(kind, bits);
    for key in 0..keys {
        builder.add(hash(key));
        builder.add(hash(key));
    }
    let expected = builder.encoded_len();
    let bytes = builder.finish().expect("a filter");
    let slack = 600 + keys / 1000;
    assert!(expected.abs_diff(bytes.len() as u64) <= slack, "{expected} {}", bytes.len());
    bytes
}

fn false_positives(filter: &Filter<Lines>, keys: u64, asked: u64) -> f64 {
    let wrong = (keys..keys + asked).filter(|&key| filter.may_contain(hash(key))).count();
    wrong as f64 / asked as f64
}

/// What the theory says of filters of so many bits for each key.
fn theory(kind: FilterKind, bits: f64) -> f64 {
    let probes = (bits * std::f64::consts::LN_2).round().max(1.0);
    match kind {
        FilterKind::Ribbon => 2f64.powf(-bits),
        _ => (1.0 - (-probes / bits).exp()).powf(probes),
    }
}

#[test]
fn false_positives_are_as_few_as_the_theory_says() {
    for kind in KINDS {
        for bits in [1, 2, 4, 7, 10, 16, 24] {
            let keys = 50_000;
            let bytes = encoded(kind, bits, keys);
            let filter = Filter::of(&bytes).expect("a filter").kept();
            let rate = false_positives(&filter, keys, 200_000);
            // Lines are filled unevenly. Slots that stay empty cost a ribbon a few hundredths of its bits.
            let (bits, slack) = (f64::from(bits), 1.15);
            let expected = match kind {
                FilterKind::Bloom => theory(kind, bits),
                FilterKind::BlockedBloom => theory(kind, bits) * (1.1 + bits * bits / 150.0),
                _ => theory(kind, bits * 0.95) * 1.1,
            };
            assert!(
                rate <= expected * slack + 2e-5,
                "{kind} with {bits} bits: {rate}, not {expected}"
            );
            assert!(rate >= theory(kind, bits) / 1.5 - 2e-5, "{kind} with {bits} bits: {rate}");
        }
    }
}

#[test]
fn a_ribbon_is_smaller() {
    let keys = 50_000;
    let rate = |kind, bits| {
        let bytes = encoded(kind, bits, keys);
        let filter = Filter::of(&bytes).expect("a filter").kept();
        (bytes.len(), false_positives(&filter, keys, 300_000))
    };
    let (bloom, of_bloom) = rate(FilterKind::BlockedBloom, 10);
    let (ribbon, of_ribbon) = rate(FilterKind::Ribbon, 7);
    assert!(ribbon * 10 <= bloom * 7 + 1000, "{ribbon} {bloom}");
    assert!(of_ribbon <= of_bloom * 1.1, "{of_ribbon} {of_bloom}");
}

#[test]
fn edges() {
    assert!(FilterBuilder::new(FilterKind::Ribbon, 0).finish().is_none());
    assert!(!FilterBuilder::new(FilterKind::None, 10).is_wanted());
    for kind in KINDS {
        let empty = encoded(kind, 10, 0);
        assert!(!Filter::of(&empty).expect("a filter").may_contain(7));
        assert_eq!(encoded(kind, 99, 500), encoded(kind, 32, 500));
        let one = encoded(kind, 10, 1);
        let filter = Filter::of(&one).expect("a filter").kept();
        assert!(filter.may_contain(hash(0)));
        assert!(filter.memory() <= one.len() + LINE);
        assert!(false_positives(&filter, 1, 1000) < 0.05);
    }
    for bad in [&[][..], &[0], &[1], &[1, 0], &[1, 23, 0], &[2, 0], &[2, 13], &[3, 0, 0, 0]] {
        assert!(Filter::of(bad).is_none(), "{bad:?}");
    }
    for bad in [&[2; 65][..], &[2; 67], &[3, 1, 0, 0, 0, 9, 9, 9], &[4; 66]] {
        assert!(Filter::of(bad).is_none(), "{bad:?}");
    }
    assert!(Filter::of(&[2; 66]).is_some() && Filter::of_version_1(&[2; 65]).is_some());
}

#[test]
fn version_1_is_a_blocked_bloom_filter_without_its_kind() {
    let bytes = encoded(FilterKind::BlockedBloom, 10, 1000);
    let filter = Filter::of_version_1(&bytes[1..]).expect("a filter");
    assert!((0..1000).all(|key| filter.may_contain(hash(key))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_key_is_denied(
        kind in prop::sample::select(&KINDS),
        bits in 1u32..=32,
        count in prop_oneof![0usize..300, 0usize..10_000, 0usize..100_000],
        seed in any::<u64>(),
        narrow in any::<bool>(),
    ) {
        let mut rng = Rng::new(seed);
        // Hashes that crowd in one corner are no good ones, but none may be denied.
        let draw = |_| if narrow { rng.next() >> 44 } else { rng.next() };
        let hashes: Vec<u64> = (0..count).map(draw).collect();
        let mut builder = FilterBuilder::new(kind, bits);
        hashes.iter().for_each(|&hash| builder.add(hash));
        let bytes = builder.finish().expect("a filter");
        let in_place = Filter::of(&bytes).expect("a filter");
        prop_assert!(hashes.iter().all(|&hash| in_place.may_contain(hash)));
        let kept = in_place.kept();
        prop_assert!(hashes.iter().all(|&hash| kept.may_contain(hash)));
        hashes.iter().for_each(|&hash| kept.prefetch(hash));
    }

    #[test]
    fn hostile_bytes_give_answers(
        kind in 0u8..5,
        head in proptest::collection::vec(prop_oneof![0u8..3, any::<u8>()], 0..24),
        body in proptest::collection::vec(any::<u8>(), 0..200),
        hashes in proptest::collection::vec(any::<u64>(), 1..40),
    ) {
        let bytes = [&[kind][..], &head, &body].concat();
        for filter in [Filter::of(&bytes), Filter::of_version_1(&bytes)].into_iter().flatten() {
            let asked: Vec<bool> = hashes.iter().map(|&hash| filter.may_contain(hash)).collect();
            let kept = filter.kept();
            prop_assert!(kept.memory() <= bytes.len() + LINE);
            for (&hash, asked) in hashes.iter().zip(asked) {
                kept.prefetch(hash);
                prop_assert_eq!(kept.may_contain(hash), asked);
            }
        }
    }
}
