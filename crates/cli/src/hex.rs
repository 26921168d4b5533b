//! Keys and values as the user types and reads them: raw bytes, or hexadecimal digits with `--hex`.

use std::ffi::OsStr;
use std::io::{self, Write};

use clap::Args;

use crate::failure::{Failure, Result};

/// How keys and values are written on the command line and in the output.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Notation {
    /// Read and write keys and values as hexadecimal digits
    #[arg(long)]
    hex: bool,
}

impl Notation {
    /// The bytes an argument stands for.
    pub(crate) fn read(self, argument: &OsStr) -> Result<Vec<u8>> {
        let bytes = argument.as_encoded_bytes();
        if !self.hex {
            return Ok(bytes.to_vec());
        }
        decode(bytes).ok_or_else(|| {
            let text = argument.display();
            Failure::usage(format!("{text:?} is not hexadecimal: two digits 0-9 a-f for each byte"))
        })
    }

    /// Writes `bytes` in this notation.
    pub(crate) fn write(self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        if !self.hex {
            return out.write_all(bytes);
        }
        out.write_all(encode(bytes).as_bytes())
    }
}

/// The digits of `bytes`.
pub(crate) fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_again(bytes: Vec<u8>) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn what_is_read_would_be_written_so(digits in "[0-9a-fA-F+ g]{0,8}") {
            if let Some(bytes) = decode(digits.as_bytes()) {
                prop_assert_eq!(encode(&bytes), digits.to_lowercase());
            }
        }
    }

    #[test]
    fn there_and_back() {
        let hex = Notation { hex: true };
        let bytes = hex.read(OsStr::new("00fFa9")).unwrap();
        assert_eq!(bytes, [0, 0xff, 0xa9]);
        let mut out = Vec::new();
        hex.write(&bytes, &mut out).unwrap();
        assert_eq!(out, b"00ffa9");
        assert!(hex.read(OsStr::new("abc")).is_err() && hex.read(OsStr::new("+1")).is_err());
        assert_eq!(Notation { hex: false }.read(OsStr::new("0a")).unwrap(), b"0a");
    }
}
