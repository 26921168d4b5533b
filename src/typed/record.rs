//! Between records as their types and their bytes, and saying which record it was if bytes are none of the type.

use super::decode_error::DecodeError;
use super::key::{KeyCodec, KeyReader, KeyWriter};
use super::prefix::KeyPrefix;
use super::value::ValueCodec;
use crate::base::Slice;
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;

/// The most bytes of a key that a message shows.
const SHOWN: usize = 64;

/// The key in `bytes`.
#[inline]
pub(super) fn key<K: KeyCodec>(keyspace: &Keyspace, bytes: &[u8]) -> Result<K> {
    KeyReader::read(bytes).map_err(|error| failed(keyspace, "", bytes, &K::name(), &error))
}

/// The value in `bytes`, which is that of `key`.
#[inline]
pub(super) fn value<V: ValueCodec>(keyspace: &Keyspace, key: &[u8], bytes: Slice) -> Result<V> {
    V::decode(bytes).map_err(|error| failed(keyspace, "value of the ", key, &V::name(), &error))
}

/// The key and the value in `bytes`.
#[inline]
pub(super) fn both<K: KeyCodec, V: ValueCodec>(
    keyspace: &Keyspace,
    bytes: (Slice, Slice),
) -> Result<(K, V)> {
    Ok((key(keyspace, &bytes.0)?, value(keyspace, &bytes.0, bytes.1)?))
}

/// The values of one key.
pub(super) fn values<V: ValueCodec>(
    keyspace: &Keyspace,
    key: &[u8],
    values: Vec<Slice>,
) -> Result<Vec<V>> {
    values.into_iter().map(|bytes| value(keyspace, key, bytes)).collect()
}

/// The values that were found for as many keys.
pub(super) fn found<V: ValueCodec>(
    keyspace: &Keyspace,
    keys: &[KeyWriter],
    values: Vec<Option<Slice>>,
) -> Result<Vec<Option<V>>> {
    let records = keys.iter().zip(values);
    let read = |(key, bytes): (&KeyWriter, Option<Slice>)| {
        bytes.map(|bytes| value(keyspace, key.as_ref(), bytes)).transpose()
    };
    records.map(read).collect()
}

/// The bytes that keys with this beginning begin with.
pub(super) fn prefix<K>(prefix: impl KeyPrefix<K>) -> KeyWriter {
    let mut out = KeyWriter::new();
    prefix.encode(&mut out);
    out
}

#[cold]
fn failed(keyspace: &Keyspace, of: &str, key: &[u8], name: &str, error: &DecodeError) -> Error {
    let (shown, more) = match key.get(..SHOWN) {
        Some(start) if key.len() > SHOWN => (start, "..."),
        _ => (key, ""),
    };
    let what = format!(
        "the {of}key b\"{}{more}\" cannot be read as {name}: {error}",
        shown.escape_ascii()
    );
    Error::Decode { keyspace: keyspace.name().to_owned(), what }
}
