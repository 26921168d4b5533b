//! Values that are compressed with LZ4, each by itself.
//!
//! ```text
//! 00 | the bytes of the value                                   if compressing does not make them fewer
//! 01 | how many they are u32, little-endian | an LZ4 block of them
//! ```

use lz4_flex::block;

use super::buffer::Buffer;
use super::decode_error::DecodeError;
use super::value::{EncodeValue, ValueCodec};
use crate::base::Slice;
use crate::error::{Error, Result as OrError};
use crate::options::MAX_VALUE_LEN;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;
/// The bytes in front of a block.
const HEADER: usize = 5;
/// A byte of a block stands for so many of the value at most.
const MOST_FOR_A_BYTE: usize = 255;

/// A value that is compressed, with LZ4, each by itself: for long texts and other values that repeat themselves. What
/// does not get shorter is kept as it is, with one byte in front. Where small values resemble each other,
/// [`KeyspaceOptions::compression`](crate::KeyspaceOptions::compression) does more.
///
/// ```
/// # fn main() -> turbidite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = turbidite::Database::open(dir.path().join("my.db"))?;
/// use turbidite::{KeyspaceOptions, typed::Compressed};
///
/// let pages = db.typed_keyspace::<u64, Compressed<String>>("pages", KeyspaceOptions::lsm())?;
/// pages.put(1, Compressed("to and fro, ".repeat(1000)))?;
/// let Some(Compressed(page)) = pages.get(1)? else { panic!("it was put") };
/// assert_eq!(page.len(), 12_000);
/// assert!(pages.inner().get(1_u64.to_be_bytes())?.unwrap().len() < 120);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Compressed<V>(
    /// The value.
    pub V,
);

impl<V, R: EncodeValue<V>> EncodeValue<Compressed<V>> for Compressed<R> {
    fn encode(&self, out: &mut Buffer) -> OrError<()> {
        let mut plain = Buffer::new();
        let plain = self.0.encoded(&mut plain)?;
        if plain.len() > MAX_VALUE_LEN {
            return Err(Error::Invalid(format!(
                "a value of {} bytes is too large: the limit is {MAX_VALUE_LEN}, before compression, too",
                plain.len()
            )));
        }
        let block = block::compress(plain);
        if HEADER + block.len() < 1 + plain.len() {
            out.extend(&[LZ4]);
            out.extend(&(plain.len() as u32).to_le_bytes());
            out.extend(&block);
        } else {
            out.extend(&[PLAIN]);
            out.extend(plain);
        }
        Ok(())
    }
}

impl<V: ValueCodec> ValueCodec for Compressed<V> {
    fn name() -> String {
        format!("lz4({})", V::name())
    }

    fn decode(bytes: Slice) -> Result<Self, DecodeError> {
        let plain = match *bytes {
            [PLAIN, ..] => bytes.tail(1),
            [LZ4, a, b, c, d, ref block @ ..] => {
                decompressed(u32::from_le_bytes([a, b, c, d]) as usize, block)?.into()
            }
            _ => return Err(DecodeError::new("it does not begin like a compressed value")),
        };
        V::decode(plain).map(Self)
    }
}

/// The `len` bytes that a block stands for.
fn decompressed(len: usize, block: &[u8]) -> Result<Vec<u8>, DecodeError> {
    if len > MAX_VALUE_LEN.min(block.len().saturating_mul(MOST_FOR_A_BYTE)) {
        return Err(DecodeError::new("it says it has more bytes than it can"));
    }
    let mut plain = vec![0; len];
    match block::decompress_into(block, &mut plain) {
        Ok(read) if read == len => Ok(plain),
        _ => Err(DecodeError::new("it cannot be decompressed")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(value: &[u8]) -> Vec<u8> {
        let mut out = Buffer::new();
        EncodeValue::<Compressed<Vec<u8>>>::encode(&Compressed(value), &mut out).unwrap();
        out.to_vec()
    }

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Compressed::<Vec<u8>>::decode(bytes.into()).map(|Compressed(value)| value)
    }

    #[test]
    fn bytes_are_these() {
        assert_eq!(encoded(b""), [PLAIN]);
        assert_eq!(encoded(b"no repetition"), b"\0no repetition");
        let long = encoded(&[7; 1 << 20]);
        assert!(long.len() < 5000, "{}", long.len());
        assert_eq!(long[..5], [LZ4, 0, 0, 16, 0]);
        assert_eq!(decoded(&long).unwrap(), [7; 1 << 20]);
        assert!(long.len() * 250 < 1 << 20, "a byte stands for nearly as much as it can");
    }

    #[test]
    fn lengths_are_checked_before_memory_is_taken() {
        let mut bytes = encoded(&[7; 1000]);
        for len in [0, 1, 999, 1001, u32::MAX, MAX_VALUE_LEN as u32 + 1] {
            bytes[1..HEADER].copy_from_slice(&len.to_le_bytes());
            assert!(decoded(&bytes).is_err(), "{len}");
        }
        for wrong in [&[][..], &[2], &[LZ4], &[LZ4, 1, 0, 0], &[LZ4, 1, 0, 0, 0]] {
            assert!(decoded(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(parts in prop::collection::vec((any::<u8>(), 0..300_usize), 0..20)) {
            let value: Vec<u8> =
                parts.iter().flat_map(|&(byte, times)| std::iter::repeat_n(byte, times)).collect();
            prop_assert_eq!(decoded(&encoded(&value)).unwrap(), value);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            kind in 0..3_u8,
            len in 0..2000_u32,
        ) {
            let mut whole = vec![kind];
            whole.extend(len.to_le_bytes());
            whole.extend(bytes);
            if let Ok(value) = decoded(&whole) {
                prop_assert!(kind == PLAIN || value.len() == len as usize);
            }
        }
    }
}
