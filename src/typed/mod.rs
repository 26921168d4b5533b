//! Typed keyspaces: keys and values as types of the program instead of bytes.
//!
//! A [`TypedKeyspace<K, V>`](TypedKeyspace) is a [`Keyspace`](crate::Keyspace) together with two types. A [`KeyCodec`] says how keys
//! become bytes, in such a way that the bytes have the order of the type; a [`ValueCodec`] says it of values. Both
//! are there for what most programs need, and are open to a program's own types. Nothing else is between the two:
//! a typed put is a put of what the codecs made.
//!
//! ```
//! # fn main() -> turbidite::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("my.db");
//! use turbidite::{Database, KeyspaceOptions};
//!
//! let db = Database::open(path)?;
//! let visits = db.typed_keyspace::<(String, u32), i64>("visits", KeyspaceOptions::lsm())?;
//! visits.put(("Vienna", 2024), 17)?;
//! visits.put(("Vienna", 2025), -3)?;
//! visits.put(("Graz", 2025), 5)?;
//! assert_eq!(visits.get(("Vienna", 2024))?, Some(17));
//!
//! // All keys whose first parts are given, in the order of the others.
//! let years = visits.prefix(("Vienna",)).map(|item| Ok(item?.0.1)).collect::<turbidite::Result<Vec<_>>>()?;
//! assert_eq!(years, [2024, 2025]);
//! // A range of keys, from its end.
//! let ((city, year), count) = visits.range(("A", 0)..("H", 0)).next_back().unwrap()?;
//! assert_eq!((&*city, year, count), ("Graz", 2025, 5));
//! db.close()
//! # }
//! ```
//!
//! # Keys
//!
//! | type | order | bytes |
//! |---|---|---|
//! | `u8` ... `u128`, `i8` ... `i128` | as numbers | as many as the type has |
//! | `f32`, `f64` | [`total_cmp`](f64::total_cmp): below all others the negative NaN, -0.0 below 0.0, above all others the positive NaN | 4, 8 |
//! | `bool`, `char` | `false` first; by code point | 1, 4 |
//! | `String` | by byte, which is by code point | its own; in front of other parts 2 more, and one more for each zero |
//! | `Vec<u8>`, [`Slice`](crate::Slice) | by byte | likewise |
//! | `[u8; N]` | by byte | N |
//! | `Option<K>` | `None` first | 1 and those of the key |
//! | [`Reverse<K>`](std::cmp::Reverse) | that of `K` the other way round | those of `K` in front of other parts |
//! | `()`, tuples of 1 to 8 | part by part | those of the parts |
//! | `Ipv4Addr`, `Ipv6Addr`, `IpAddr` | as theirs | 4, 16, 1 and those |
//! | `Duration`, `SystemTime` | by time | 12 |
//!
//! There is no codec for `usize`, because its width differs between machines. -0.0 and 0.0 are two keys, and so are
//! two NaNs whose bits differ. `docs/format/typed.md` has the bytes.
//!
//! Lookups take borrowed forms: `"a"` or a `&String` where keys are `String`, `("a", &7)` where they are `(String, u64)`.
//!
//! # Values
//!
//! Integers and floats take their width, `bool` and `char` 1 and 4 bytes, `()` none; `String`, `Vec<u8>` and
//! [`Slice`](crate::Slice) their own bytes, of which `Slice` is read without a copy; `Option<V>` one more than `V`.
//! Integers have the highest byte first, as [`Reducer::Sum`](crate::Reducer::Sum) wants them. [`Compressed<V>`](Compressed)
//! compresses what `V` makes, `Serde<T>`, with the feature `serde`, takes any type that serde knows.
//!
//! # Types of one's own
//!
//! ```
//! use turbidite::typed::{DecodeError, EncodeKey, KeyCodec, KeyReader, KeyWriter};
//!
//! /// Ordered by place, and then the newest first.
//! #[derive(PartialEq, Debug)]
//! struct Reading {
//!     place: String,
//!     hour: u64,
//! }
//!
//! impl EncodeKey<Reading> for Reading {
//!     fn encode(&self, out: &mut KeyWriter) {
//!         out.part::<String>(&self.place).last::<u64>(!self.hour);
//!     }
//! }
//!
//! impl KeyCodec for Reading {
//!     fn name() -> String {
//!         "reading".into()
//!     }
//!     fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
//!         Ok(Self { place: from.part()?, hour: !from.last::<u64>()? })
//!     }
//! }
//! # fn main() -> turbidite::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = turbidite::Database::open(dir.path().join("my.db"))?;
//!
//! let readings = db.typed_keyspace::<Reading, f32>("readings", turbidite::KeyspaceOptions::btree())?;
//! for (hour, degrees) in [(7, 3.5), (8, 4.0)] {
//!     readings.put(Reading { place: "Linz".into(), hour }, degrees)?;
//! }
//! assert_eq!(readings.first()?, Some((Reading { place: "Linz".into(), hour: 8 }, 4.0)));
//! # Ok(()) }
//! ```
//!
//! # Safety against mistakes
//!
//! The names of both types are noted in the database when a keyspace is opened as a typed one first. With other types it
//! cannot be opened from then on: it is an error of kind [`Invalid`](crate::ErrorKind::Invalid). Names stand for
//! encodings: `Vec<u8>` and `Slice` have the same. Without types, as [`Keyspace`](crate::Keyspace), every keyspace can be opened. So bytes
//! may be there that are none of the type; reading them is an error of kind [`Decode`](crate::ErrorKind::Decode), which
//! names keyspace and key.
//!
//! Thread safety: as that of the handles below; codecs have no state.

mod batch;
mod buffer;
mod bytes;
mod choices;
mod compressed;
mod cursor;
mod decode_error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod key;
mod key_range;
mod keyspace;
mod network;
mod numbers;
mod prefix;
mod range;
mod record;
#[cfg(feature = "serde")]
mod serde;
mod snapshot;
mod time;
mod tuples;
mod value;

#[cfg(test)]
mod tests;

#[cfg(feature = "serde")]
pub use self::serde::Serde;
pub use buffer::Buffer;
pub use compressed::Compressed;
pub use cursor::TypedCursor;
pub use decode_error::DecodeError;
pub use key::{EncodeKey, KeyCodec, KeyReader, KeyWriter};
pub use key_range::{EncodedBounds, KeyRange};
pub use keyspace::TypedKeyspace;
pub use prefix::KeyPrefix;
pub use range::TypedRange;
pub use snapshot::TypedSnapshot;
pub use value::{EncodeValue, ValueCodec};
