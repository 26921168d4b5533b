//! Values of any type that serde knows, as postcard has them: a compact format with a written specification, in which
//! neither names nor types of fields are stored.

use ::serde::Serialize;
use ::serde::de::DeserializeOwned;
use postcard::ser_flavors::Flavor;

use super::buffer::Buffer;
use super::decode_error::DecodeError;
use super::value::{EncodeValue, ValueCodec};
use crate::base::Slice;
use crate::error::{Error, Result as OrError};

/// A value of a type with serde's traits, in the [postcard](https://postcard.jamesmunns.com/wire-format) format: integers
/// take as many bytes as they need, fields are one behind the other, and their names are not stored. So fields cannot be
/// added or change places while old values are to be read; an enum may get more variants at its end. Types that need to
/// ask what comes next, as with `#[serde(flatten)]` or `#[serde(untagged)]`, cannot be read.
///
/// What is put may be a `Serde(value)` or a `Serde(&value)`.
///
/// Values from untrusted hands: what they say is bounded by their bytes, but for two kinds of types. A list of what takes no
/// bytes, as `Vec<()>`, is as long as the value says. And a type that holds itself, as in
/// `enum Tree { Leaf, Node(Box<Tree>) }`, is read by one call within another for each level, of which a value may have as many
/// as bytes: that may overflow the stack, which ends the process. Neither should be read from such a database.
///
/// ```
/// # fn main() -> turbidite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = turbidite::Database::open(dir.path().join("my.db"))?;
/// use serde::{Deserialize, Serialize};
/// use turbidite::{KeyspaceOptions, typed::Serde};
///
/// #[derive(Serialize, Deserialize, PartialEq, Debug)]
/// struct User {
///     name: String,
///     logins: Vec<u64>,
/// }
///
/// let users = db.typed_keyspace::<u64, Serde<User>>("users", KeyspaceOptions::lsm())?;
/// let ada = User { name: "Ada".into(), logins: vec![1815, 1852] };
/// users.put(1, Serde(&ada))?;
/// assert_eq!(users.get(1)?, Some(Serde(ada)));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Serde<T>(
    /// The value.
    pub T,
);

/// Takes what postcard writes.
struct Output<'a>(&'a mut Buffer);

impl Flavor for Output<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

fn encode<T: Serialize>(value: &T, out: &mut Buffer) -> OrError<()> {
    postcard::serialize_with_flavor(value, Output(out))
        .map_err(|error| Error::Invalid(format!("a value cannot be serialized: {error}")))
}

impl<T: Serialize> EncodeValue<Self> for Serde<T> {
    fn encode(&self, out: &mut Buffer) -> OrError<()> {
        encode(&self.0, out)
    }
}

impl<T: Serialize> EncodeValue<Serde<T>> for Serde<&T> {
    fn encode(&self, out: &mut Buffer) -> OrError<()> {
        encode(self.0, out)
    }
}

impl<T: Serialize + DeserializeOwned> ValueCodec for Serde<T> {
    fn name() -> String {
        "postcard".into()
    }

    fn decode(bytes: Slice) -> Result<Self, DecodeError> {
        match postcard::take_from_bytes(&bytes) {
            Ok((value, [])) => Ok(Self(value)),
            Ok((_, more)) => Err(DecodeError::new(format!("{} bytes follow it", more.len()))),
            Err(error) => Err(DecodeError::new(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::serde::Deserialize;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Dot,
        Circle { radius: f64 },
        Path(Vec<(i32, i32)>, Option<String>),
    }

    type Shapes = Serde<BTreeMap<String, Shape>>;

    fn shapes() -> BTreeMap<String, Shape> {
        let path = vec![(1, -1), (i32::MIN, i32::MAX)];
        BTreeMap::from([
            ("a".into(), Shape::Dot),
            ("b".into(), Shape::Circle { radius: 1.5 }),
            ("c".into(), Shape::Path(path, Some("way".into()))),
        ])
    }

    fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
        let mut out = Buffer::new();
        EncodeValue::<Serde<T>>::encode(&Serde(value), &mut out).unwrap();
        out.to_vec()
    }

    #[test]
    fn round_trip() {
        let bytes = encoded(&shapes());
        assert_eq!(Shapes::decode((&bytes[..]).into()).unwrap(), Serde(shapes()));
        assert_eq!(encoded(&(300_u32, "ab")), b"\xac\x02\x02ab");
        for cut in 0..bytes.len() {
            assert!(Shapes::decode(bytes[..cut].into()).is_err());
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Shapes::decode(longer.into()), Err(DecodeError::new("1 bytes follow it")));
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        struct Unwritable;
        impl Serialize for Unwritable {
            fn serialize<S: ::serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(::serde::ser::Error::custom("no"))
            }
        }
        let error = Serde(Unwritable).encode(&mut Buffer::new()).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            _ = Shapes::decode(bytes.into());
        }

        #[test]
        fn damaged_bytes_are_read_or_refused(at: prop::sample::Index, byte: u8) {
            let mut bytes = encoded(&shapes());
            *at.get_mut(&mut bytes) = byte;
            _ = Shapes::decode(bytes.into());
        }
    }
}
