//! Codecs of types that are made of one other, or of none.
//!
//! ```text
//!               keys                                          values
//! ()            no bytes                                      no bytes
//! Option        00 | 01, that of the key                      00 | 01, that of the value
//! Reverse       all bytes inverted of that of the key in
//!               front of other parts
//! ```

use std::cmp::Reverse;

use super::buffer::Buffer;
use super::decode_error::DecodeError;
use super::key::{EncodeKey, KeyCodec, KeyReader, KeyWriter};
use super::value::{EncodeValue, ValueCodec};
use crate::base::Slice;
use crate::error::Result as OrError;

const NONE: u8 = 0;
const SOME: u8 = 1;

impl EncodeKey<Self> for () {
    #[inline]
    fn encode(&self, _: &mut KeyWriter) {}
}

impl KeyCodec for () {
    fn name() -> String {
        "()".into()
    }
    #[inline]
    fn decode(_: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl EncodeValue<Self> for () {
    #[inline]
    fn encode(&self, _: &mut Buffer) -> OrError<()> {
        Ok(())
    }
}

impl ValueCodec for () {
    fn name() -> String {
        "()".into()
    }
    #[inline]
    fn decode(bytes: Slice) -> Result<Self, DecodeError> {
        match bytes.len() {
            0 => Ok(()),
            more => {
                Err(DecodeError::new(format!("there should be no bytes, and there are {more}")))
            }
        }
    }
}

impl<K, Q: EncodeKey<K>> EncodeKey<Option<K>> for Option<Q> {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        match self {
            None => _ = out.fixed(&[NONE]),
            Some(key) => out.fixed(&[SOME]).last(key),
        }
    }
}

impl<K: KeyCodec> KeyCodec for Option<K> {
    fn name() -> String {
        format!("option({})", K::name())
    }
    #[inline]
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        match from.fixed()? {
            [NONE] => Ok(None),
            [SOME] => from.last().map(Some),
            [_] => Err(neither()),
        }
    }
}

impl<V, R: EncodeValue<V>> EncodeValue<Option<V>> for Option<R> {
    #[inline]
    fn encode(&self, out: &mut Buffer) -> OrError<()> {
        match self {
            None => {
                out.extend(&[NONE]);
                Ok(())
            }
            Some(value) => {
                out.extend(&[SOME]);
                value.encode(out)
            }
        }
    }
}

impl<V: ValueCodec> ValueCodec for Option<V> {
    fn name() -> String {
        format!("option({})", V::name())
    }
    #[inline]
    fn decode(bytes: Slice) -> Result<Self, DecodeError> {
        match *bytes {
            [NONE] => Ok(None),
            [SOME, ..] => V::decode(bytes.tail(1)).map(Some),
            _ => Err(neither()),
        }
    }
}

#[cold]
fn neither() -> DecodeError {
    DecodeError::new("it begins neither like something nor is it what stands for nothing")
}

impl<K, Q: EncodeKey<K>> EncodeKey<Reverse<K>> for Reverse<Q> {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        out.reversed(&self.0);
    }
}

impl<K: KeyCodec> KeyCodec for Reverse<K> {
    fn name() -> String {
        format!("reverse({})", K::name())
    }
    #[inline]
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        from.reversed().map(Self)
    }
}
