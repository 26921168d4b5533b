//! Codecs of numbers, `bool` and `char`.
//!
//! ```text
//!            keys                                            values
//! unsigned   the highest byte first                          likewise
//! signed     the same, the sign bit inverted                 two's complement, the highest byte first
//! floats     as a signed number: the bits, all but the       the bits, the highest byte first
//!            sign inverted in negative ones
//! bool       00, 01                                          likewise
//! char       as u32                                          likewise
//! ```

use super::buffer::Buffer;
use super::decode_error::DecodeError;
use super::key::{EncodeKey, KeyCodec, KeyReader, KeyWriter};
use super::value::{EncodeValue, ValueCodec, fixed};
use crate::base::Slice;
use crate::error::Result as OrError;

/// The codecs of types that are as many bytes as they have, with what is to be inverted in keys.
macro_rules! integers {
    ($($number:ident ^ $inverted:expr),*) => {$(
        impl EncodeKey<Self> for $number {
            #[inline]
            fn encode(&self, out: &mut KeyWriter) {
                out.fixed(&(self ^ $inverted).to_be_bytes());
            }
        }

        impl KeyCodec for $number {
            fn name() -> String {
                stringify!($number).into()
            }
            #[inline]
            fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(from.fixed()?) ^ $inverted)
            }
        }

        impl EncodeValue<Self> for $number {
            #[inline]
            fn encode(&self, out: &mut Buffer) -> OrError<()> {
                out.extend(&self.to_be_bytes());
                Ok(())
            }
        }

        impl ValueCodec for $number {
            fn name() -> String {
                stringify!($number).into()
            }
            #[inline]
            fn decode(bytes: Slice) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(fixed(&bytes)?))
            }
        }
    )*};
}

integers!(u8 ^ 0, u16 ^ 0, u32 ^ 0, u64 ^ 0, u128 ^ 0);
integers!(i8 ^ i8::MIN, i16 ^ i16::MIN, i32 ^ i32::MIN, i64 ^ i64::MIN, i128 ^ i128::MIN);

/// The codecs of a float, by the integer of its bits.
macro_rules! float {
    ($float:ident, $bits:ident) => {
        impl EncodeKey<Self> for $float {
            #[inline]
            fn encode(&self, out: &mut KeyWriter) {
                let bits = self.to_bits().cast_signed();
                out.last::<$bits>(if bits < 0 { bits ^ $bits::MAX } else { bits });
            }
        }

        impl KeyCodec for $float {
            fn name() -> String {
                stringify!($float).into()
            }
            #[inline]
            fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
                let bits = from.last::<$bits>()?;
                let bits = if bits < 0 { bits ^ $bits::MAX } else { bits };
                Ok(Self::from_bits(bits.cast_unsigned()))
            }
        }

        impl EncodeValue<Self> for $float {
            #[inline]
            fn encode(&self, out: &mut Buffer) -> OrError<()> {
                out.extend(&self.to_be_bytes());
                Ok(())
            }
        }

        impl ValueCodec for $float {
            fn name() -> String {
                stringify!($float).into()
            }
            #[inline]
            fn decode(bytes: Slice) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(fixed(&bytes)?))
            }
        }
    };
}

float!(f32, i32);
float!(f64, i64);

/// The codecs of a type that is a number of which not all mean something.
macro_rules! as_number {
    ($some:ident, $number:ident, $from:expr, $wrong:literal) => {
        impl EncodeKey<Self> for $some {
            #[inline]
            fn encode(&self, out: &mut KeyWriter) {
                out.last::<$number>($number::from(*self));
            }
        }

        impl KeyCodec for $some {
            fn name() -> String {
                stringify!($some).into()
            }
            #[inline]
            fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
                $from(from.last::<$number>()?).ok_or_else(|| DecodeError::new($wrong))
            }
        }

        impl EncodeValue<Self> for $some {
            #[inline]
            fn encode(&self, out: &mut Buffer) -> OrError<()> {
                EncodeValue::encode(&$number::from(*self), out)
            }
        }

        impl ValueCodec for $some {
            fn name() -> String {
                stringify!($some).into()
            }
            #[inline]
            fn decode(bytes: Slice) -> Result<Self, DecodeError> {
                let number = <$number as ValueCodec>::decode(bytes)?;
                $from(number).ok_or_else(|| DecodeError::new($wrong))
            }
        }
    };
}

as_number!(bool, u8, |byte| (byte < 2).then_some(byte == 1), "the byte is neither 0 nor 1");
as_number!(char, u32, char::from_u32, "the number is no code point");
