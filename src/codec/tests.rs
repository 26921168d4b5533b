//! All methods that are compiled in: what is compressed comes back, and hostile bytes give no more than was asked for.

use proptest::prelude::*;

use super::*;

const CODECS: [Codec; 3] = [Codec::Lz4, Codec::Snappy, Codec::Zstd];

fn present() -> impl Iterator<Item = Codec> {
    CODECS.into_iter().filter(|codec| codec.check().is_ok())
}

/// Records alike, each of them too short to be compressed by itself.
fn records() -> Vec<Vec<u8>> {
    let record = |n: u32| {
        format!(r#"{{"id":{n},"name":"user {}","mail":"{n}@example.org"}}"#, n.wrapping_mul(77_777))
    };
    (0..2000).map(|n| record(n).into_bytes()).collect()
}

#[test]
fn bytes_name_methods() {
    for codec in CODECS {
        assert_eq!(Codec::of(codec as u8), Some(codec));
    }
    assert!(Codec::of(0).is_none() && Codec::of(4).is_none());
    let is_present = |codec: Codec| codec.check().is_ok();
    assert!(is_present(Codec::Lz4));
    assert_eq!(is_present(Codec::Snappy), cfg!(feature = "snappy"));
    assert_eq!(is_present(Codec::Zstd), cfg!(feature = "zstd"));
}

#[test]
fn what_is_absent_names_its_feature() {
    for codec in CODECS.into_iter().filter(|codec| codec.check().is_err()) {
        for error in [codec.compressor(3, b"").err(), codec.decompressor(b"").err()] {
            let text = error.expect("refused").to_string();
            assert!(text.contains(&format!("the feature `{codec}`")), "{text}");
        }
    }
}

#[test]
fn every_level_compresses() {
    let bytes = records().concat();
    for codec in present() {
        for level in 1..=22 {
            let mut out = b"in front".to_vec();
            assert!(codec.compressor(level, b"").unwrap().compress(&bytes, &mut out));
            assert!(out.starts_with(b"in front") && out.len() < bytes.len() / 2, "{codec} {level}");
            let mut back = vec![0; bytes.len()];
            let decompressor = codec.decompressor(b"").unwrap().expect("no dictionary");
            assert!(decompressor.decompress(&out[8..], &mut back) && back == bytes);
        }
    }
}

#[test]
fn a_dictionary_helps_records_alike() {
    let records = records();
    let samples: Vec<&[u8]> = records.iter().map(|record| &record[..]).collect();
    for codec in present() {
        let dictionary = codec.train(&samples, 1000);
        assert!(dictionary.len() <= 1000);
        assert_eq!(dictionary.is_empty(), codec != Codec::Zstd);
        let mut compressor = codec.compressor(3, &dictionary).unwrap();
        let decompressor = codec.decompressor(&dictionary).unwrap().expect("a dictionary");
        let mut total = 0;
        for record in &records[..100] {
            let mut out = Vec::new();
            assert!(compressor.compress(record, &mut out));
            total += out.len();
            let mut back = vec![0; record.len()];
            assert!(decompressor.decompress(&out, &mut back) && back == *record);
        }
        if codec == Codec::Zstd {
            assert!(total < records[..100].concat().len() / 2, "{total}");
            assert!(decompressor.memory() > 1000);
            assert!(codec.train(&samples[..1], 1000).is_empty(), "too little to learn from");
            // A dictionary that says it is one, and is none.
            assert!(codec.decompressor(&dictionary[..20]).unwrap().is_none());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_compressed_comes_back(
        bytes in proptest::collection::vec(prop_oneof![Just(0u8), 0u8..4, any::<u8>()], 0..3000),
        dictionary in proptest::collection::vec(0u8..4, 0..300),
        times in 1usize..30,
    ) {
        let bytes = bytes.repeat(times);
        for codec in present() {
            let mut out = Vec::new();
            prop_assert!(codec.compressor(3, &dictionary).unwrap().compress(&bytes, &mut out));
            let decompressor = codec.decompressor(&dictionary).unwrap().expect("plain bytes");
            let mut back = vec![1; bytes.len()];
            prop_assert!(decompressor.decompress(&out, &mut back));
            prop_assert_eq!(&back, &bytes);
            let mut longer = vec![0; bytes.len() + 1];
            prop_assert!(!decompressor.decompress(&out, &mut longer));
            if let Some(shorter) = bytes.len().checked_sub(1) {
                prop_assert!(!decompressor.decompress(&out, &mut longer[..shorter]));
            }
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_decompressed(
        start in any::<prop::sample::Index>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        for codec in present() {
            let whole = records()[..20].concat();
            let mut bent = Vec::new();
            prop_assert!(codec.compressor(3, b"").unwrap().compress(&whole, &mut bent));
            for (at, byte) in &changes {
                let at = at.index(bent.len());
                bent[at] = *byte;
            }
            let start = start.index(bent.len());
            let mixed = [&bent[..start], &bytes].concat();
            let decompressor = codec.decompressor(b"").unwrap().expect("no dictionary");
            for bytes in [&bent, &bytes, &mixed] {
                for len in [0, 1, 50, whole.len()] {
                    decompressor.decompress(bytes, &mut vec![0; len]);
                }
            }
            let _ = codec.decompressor(&mixed).unwrap();
        }
    }
}
