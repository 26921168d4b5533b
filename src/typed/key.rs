//! Keys as bytes that have the order of their type.
//!
//! A type has two encodings. At the *end* of a key it may be any bytes in the right order. In front of other parts
//! it must be *prefix-free*, too: no encoding is the beginning of another one, so that what follows decides only
//! between equals, and the end of it is found. Codecs of fixed length have one for both. Writer and reader know which of
//! the two is due, so that codecs that are made of others need not.
//!
//! Bytes of any length, in front of other parts:
//!
//! ```text
//! the bytes, 00 ff for each 00 | 00 00
//! ```
//!
//! Thread safety: plain data, one owner.

use std::borrow::Cow;

use super::buffer::Buffer;
use super::decode_error::DecodeError;

/// In bytes that end with a mark: what an escape and the mark begin with.
const ZERO: u8 = 0x00;
/// What follows it in the end mark.
const END: u8 = 0x00;
/// What follows it if it stands for a zero.
const ESCAPED: u8 = 0xff;

/// Something that can be written as a key of type `K`: a `K`, or what is borrowed from one.
///
/// All that are equal must have the same bytes, and the bytes must have the order that `K` is to have.
pub trait EncodeKey<K> {
    /// Writes the key.
    fn encode(&self, out: &mut KeyWriter);

    /// The bytes of a whole key. Those that have them already lend them, so that they are not copied; the others write
    /// them to `out`, which is empty.
    #[inline]
    fn encoded<'a>(&'a self, out: &'a mut KeyWriter) -> &'a [u8] {
        self.encode(out);
        &out.buffer
    }
}

/// A type of keys: how they are read. How they are written is what their [`EncodeKey`] says.
pub trait KeyCodec: EncodeKey<Self> + Sized {
    /// A name for the encoding, which is noted in the database: it must stay when a type is renamed, and another one
    /// is due when its bytes change. It should not be empty.
    fn name() -> String;

    /// Reads a key. All that [`EncodeKey`] writes can be read, and comes back equal.
    ///
    /// # Errors
    /// What is wrong with the bytes, which may be any. It must not panic.
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError>;
}

impl<K, Q: EncodeKey<K> + ?Sized> EncodeKey<K> for &Q {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        (**self).encode(out);
    }

    #[inline]
    fn encoded<'a>(&'a self, out: &'a mut KeyWriter) -> &'a [u8] {
        (**self).encoded(out)
    }
}

/// Takes the bytes of a key.
#[derive(Clone, Debug)]
pub struct KeyWriter {
    buffer: Buffer,
    /// Whether nothing follows what is written now.
    is_last: bool,
}

impl KeyWriter {
    /// A writer of a whole key.
    #[inline]
    pub(super) fn new() -> Self {
        Self { buffer: Buffer::new(), is_last: true }
    }

    /// The bytes of a key.
    #[inline]
    pub(super) fn of<K>(key: impl EncodeKey<K>) -> Self {
        let mut out = Self::new();
        key.encode(&mut out);
        out
    }

    /// Writes a part that others follow.
    #[inline]
    pub fn part<K>(&mut self, part: impl EncodeKey<K>) -> &mut Self {
        let is_last = std::mem::replace(&mut self.is_last, false);
        part.encode(self);
        self.is_last = is_last;
        self
    }

    /// Writes the last part, or the only one.
    #[inline]
    pub fn last<K>(&mut self, part: impl EncodeKey<K>) {
        part.encode(self);
    }

    /// Writes bytes as they are, for codecs that are not made of others. All that one codec writes so must be of one
    /// length, or none the beginning of another.
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer.extend(bytes);
        self
    }

    /// Writes bytes of any length, in their order.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        if self.is_last {
            self.buffer.extend(bytes);
        } else {
            self.terminated(bytes);
        }
        self
    }

    fn terminated(&mut self, bytes: &[u8]) {
        let mut runs = bytes.split(|&byte| byte == ZERO);
        self.buffer.extend(runs.next().unwrap_or_default());
        for run in runs {
            self.buffer.extend(&[ZERO, ESCAPED]);
            self.buffer.extend(run);
        }
        self.buffer.extend(&[ZERO, END]);
    }

    /// Writes a part so that it has the opposite order.
    pub(super) fn reversed<K>(&mut self, part: impl EncodeKey<K>) {
        let start = self.buffer.len();
        // Inverting turns the order round only where no encoding is the beginning of another.
        self.part(part).buffer.invert_from(start);
    }
}

impl AsRef<[u8]> for KeyWriter {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

/// Gives the bytes of a key.
#[derive(Clone, Debug)]
pub struct KeyReader<'a> {
    rest: &'a [u8],
    /// Is xored to each byte: 0xff in what was written in opposite order.
    flip: u8,
    /// Whether nothing follows what is read now. `flip` is 0 then.
    is_last: bool,
}

impl<'a> KeyReader<'a> {
    /// The whole key in `bytes`.
    #[inline]
    pub(super) fn read<K: KeyCodec>(bytes: &'a [u8]) -> Result<K, DecodeError> {
        let mut from = Self { rest: bytes, flip: 0, is_last: true };
        let key = K::decode(&mut from)?;
        match from.rest.len() {
            0 => Ok(key),
            more => Err(DecodeError::new(format!("{more} bytes follow it"))),
        }
    }

    /// Reads a part that others follow.
    ///
    /// # Errors
    /// What is wrong with the bytes; so with the other calls.
    #[inline]
    pub fn part<K: KeyCodec>(&mut self) -> Result<K, DecodeError> {
        let is_last = std::mem::replace(&mut self.is_last, false);
        let part = K::decode(self);
        self.is_last = is_last;
        part
    }

    /// Reads the last part, or the only one.
    #[inline]
    pub fn last<K: KeyCodec>(&mut self) -> Result<K, DecodeError> {
        K::decode(self)
    }

    /// Reads what [`fixed`](KeyWriter::fixed) wrote.
    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(missing(N - self.rest.len()));
        };
        self.rest = rest;
        Ok(bytes.map(|byte| byte ^ self.flip))
    }

    /// Reads what [`bytes`](KeyWriter::bytes) wrote.
    #[inline]
    pub fn bytes(&mut self) -> Result<Cow<'a, [u8]>, DecodeError> {
        if self.is_last {
            return Ok(Cow::Borrowed(std::mem::take(&mut self.rest)));
        }
        self.terminated()
    }

    fn terminated(&mut self) -> Result<Cow<'a, [u8]>, DecodeError> {
        let mut bytes: Cow<'a, [u8]> = Cow::default();
        loop {
            let run = self.until_zero()?;
            let [mark] = self.fixed()?;
            if self.flip == 0 && bytes.is_empty() {
                bytes = Cow::Borrowed(run);
            } else {
                bytes.to_mut().extend(run.iter().map(|byte| byte ^ self.flip));
            }
            match mark {
                END => return Ok(bytes),
                ESCAPED => bytes.to_mut().push(ZERO),
                _ => return Err(DecodeError::new("a zero in it is neither escaped nor its end")),
            }
        }
    }

    /// What stands in front of the next zero, which is passed, as it is in the key.
    fn until_zero(&mut self) -> Result<&'a [u8], DecodeError> {
        let at = self.rest.iter().position(|byte| byte ^ self.flip == ZERO);
        let at = at.ok_or_else(|| DecodeError::new("the end of a part is missing"))?;
        let (run, rest) = self.rest.split_at(at);
        self.rest = &rest[1..];
        Ok(run)
    }

    /// Reads a part that was written in opposite order.
    pub(super) fn reversed<K: KeyCodec>(&mut self) -> Result<K, DecodeError> {
        self.flip = !self.flip;
        let part = self.part();
        self.flip = !self.flip;
        part
    }
}

#[cold]
fn missing(bytes: usize) -> DecodeError {
    DecodeError::new(format!("{bytes} bytes of it are missing"))
}
