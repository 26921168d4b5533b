//! Codecs of bytes and text.
//!
//! ```text
//!                      keys                                   values
//! Vec<u8>, Slice       the bytes, as key.rs has them          the bytes
//! [u8; N]              the bytes                              the bytes
//! String               its UTF-8, as key.rs has it            its UTF-8
//! ```

use std::borrow::Cow;

use super::buffer::Buffer;
use super::decode_error::DecodeError;
use super::key::{EncodeKey, KeyCodec, KeyReader, KeyWriter};
use super::value::{EncodeValue, ValueCodec, fixed};
use crate::base::Slice;
use crate::error::Result as OrError;

/// What has the bytes of text or bytes, and lends them.
macro_rules! lends {
    ($(($whole:ty, $part:ty $(, $n:ident)?))*) => {$(
        impl$(<const $n: usize>)? EncodeKey<$whole> for $part {
            #[inline]
            fn encode(&self, out: &mut KeyWriter) {
                out.bytes(self.as_ref());
            }
            #[inline]
            fn encoded<'a>(&'a self, _: &'a mut KeyWriter) -> &'a [u8] {
                self.as_ref()
            }
        }

        impl$(<const $n: usize>)? EncodeValue<$whole> for $part {
            #[inline]
            fn encode(&self, out: &mut Buffer) -> OrError<()> {
                out.extend(self.as_ref());
                Ok(())
            }
            #[inline]
            fn encoded<'a>(&'a self, _: &'a mut Buffer) -> OrError<&'a [u8]> {
                Ok(self.as_ref())
            }
        }
    )*};
}

lends! {
    (String, str) (String, String)
    (Vec<u8>, [u8]) (Vec<u8>, Vec<u8>) (Vec<u8>, Slice) (Vec<u8>, [u8; N], N)
    (Slice, [u8]) (Slice, Vec<u8>) (Slice, Slice) (Slice, [u8; N], N)
}

/// The codecs of a type of bytes or text of any length.
macro_rules! reads {
    ($whole:ident, $name:literal, $from_key:expr, $from_value:expr) => {
        impl KeyCodec for $whole {
            fn name() -> String {
                $name.into()
            }
            #[inline]
            fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
                $from_key(from.bytes()?)
            }
        }

        impl ValueCodec for $whole {
            fn name() -> String {
                $name.into()
            }
            #[inline]
            fn decode(bytes: Slice) -> Result<Self, DecodeError> {
                $from_value(bytes)
            }
        }
    };
}

type Bytes = Vec<u8>;

reads!(String, "str", |bytes: Cow<'_, [u8]>| text(bytes.into_owned()), |bytes: Slice| text(
    bytes.to_vec()
));
reads!(Bytes, "bytes", |bytes: Cow<'_, [u8]>| Ok(bytes.into_owned()), |bytes: Slice| Ok(
    bytes.to_vec()
));
reads!(Slice, "bytes", |bytes| Ok(slice(bytes)), Ok);

fn text(bytes: Vec<u8>) -> Result<String, DecodeError> {
    String::from_utf8(bytes).map_err(|_| DecodeError::new("the text is not UTF-8"))
}

fn slice(bytes: Cow<'_, [u8]>) -> Slice {
    match bytes {
        Cow::Borrowed(bytes) => Slice::from(bytes),
        Cow::Owned(bytes) => Slice::from(bytes),
    }
}

impl<const N: usize> EncodeKey<Self> for [u8; N] {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        out.fixed(self);
    }
    #[inline]
    fn encoded<'a>(&'a self, _: &'a mut KeyWriter) -> &'a [u8] {
        self
    }
}

impl<const N: usize> KeyCodec for [u8; N] {
    fn name() -> String {
        format!("[u8; {N}]")
    }
    #[inline]
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        from.fixed()
    }
}

impl<const N: usize> EncodeValue<Self> for [u8; N] {
    #[inline]
    fn encode(&self, out: &mut Buffer) -> OrError<()> {
        out.extend(self);
        Ok(())
    }
    #[inline]
    fn encoded<'a>(&'a self, _: &'a mut Buffer) -> OrError<&'a [u8]> {
        Ok(self)
    }
}

impl<const N: usize> ValueCodec for [u8; N] {
    fn name() -> String {
        format!("[u8; {N}]")
    }
    #[inline]
    fn decode(bytes: Slice) -> Result<Self, DecodeError> {
        fixed(&bytes)
    }
}
