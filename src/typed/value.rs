//! Values as bytes.

use super::buffer::Buffer;
use super::decode_error::DecodeError;
use crate::base::Slice;
use crate::error::Result as OrError;

/// Something that can be written as a value of type `V`: a `V`, or what is borrowed from one.
pub trait EncodeValue<V> {
    /// Writes the value.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if it cannot be written. Nothing is put then.
    fn encode(&self, out: &mut Buffer) -> OrError<()>;

    /// The bytes of a value. Those that have them already lend them, so that they are not copied; the others write them
    /// to `out`, which is empty.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    #[inline]
    fn encoded<'a>(&'a self, out: &'a mut Buffer) -> OrError<&'a [u8]> {
        self.encode(out)?;
        Ok(out)
    }
}

/// A type of values: how they are read. How they are written is what their [`EncodeValue`] says.
pub trait ValueCodec: EncodeValue<Self> + Sized {
    /// A name for the encoding, which is noted in the database: it must stay when a type is renamed, and another one
    /// is due when its bytes change. It should not be empty.
    fn name() -> String;

    /// Reads a value. All that [`EncodeValue`] writes can be read. The slice may be kept: it keeps the block or mapping
    /// alive that its bytes are in.
    ///
    /// # Errors
    /// What is wrong with the bytes, which may be any. It must not panic.
    fn decode(bytes: Slice) -> Result<Self, DecodeError>;
}

impl<V, R: EncodeValue<V> + ?Sized> EncodeValue<V> for &R {
    #[inline]
    fn encode(&self, out: &mut Buffer) -> OrError<()> {
        (**self).encode(out)
    }

    #[inline]
    fn encoded<'a>(&'a self, out: &'a mut Buffer) -> OrError<&'a [u8]> {
        (**self).encoded(out)
    }
}

/// All bytes of a value that has always as many.
#[inline]
pub(super) fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], DecodeError> {
    bytes.try_into().map_err(|_| {
        DecodeError::new(format!("there should be {N} bytes, and there are {}", bytes.len()))
    })
}
