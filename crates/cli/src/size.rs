//! Sizes and counts in the form people write and read them.

pub(crate) use indicatif::{HumanBytes as Bytes, HumanCount as Count};

/// Reads a number of bytes: `4096`, `64KiB`, `1.5 GiB`, `2GB`. A single letter means the binary unit.
pub(crate) fn parse<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 =
        number.parse().map_err(|_| String::from("it does not start with a number"))?;
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(String::from("the unit is none of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB")),
    };
    let bytes = number * scale as f64;
    if bytes >= (1_u64 << 53) as f64 {
        return Err(String::from("it is too large"));
    }
    T::try_from(bytes as u64).map_err(|_| String::from("it is too large"))
}

/// `dividend / divisor`, and 0 where that has no meaning.
pub(crate) fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_typed_is_a_number_that_fits_or_an_error(text in "[0-9.eE+\\-]{0,12} ?[kKmMgGtTiIbB\\u{c9}]{0,4}") {
            let small = parse::<u32>(&text);
            if let Ok(bytes) = parse::<u64>(&text) {
                prop_assert_eq!(small.ok(), u32::try_from(bytes).ok());
            }
        }
    }

    #[test]
    fn units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("256MiB"), Ok(256 << 20));
        assert_eq!(parse("1.5 g"), Ok(3 << 29));
        assert_eq!(parse("2GB"), Ok(2_000_000_000));
        assert_eq!(parse("4GiB"), Ok(4_u64 << 30));
        assert!(parse::<u32>("4GiB").is_err());
        for wrong in ["", "MiB", "12 parsecs", "1.2.3", "9999999999TiB", "-1"] {
            assert!(parse::<usize>(wrong).is_err(), "{wrong:?}");
        }
    }
}
