//! Why bytes cannot be read as what they should be.

use std::borrow::Cow;
use std::fmt;

/// Why bytes are not a key or a value of a type. What reads them makes an
/// [`Error::Decode`](crate::Error::Decode) of it, which names keyspace and key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError(Cow<'static, str>);

impl DecodeError {
    /// An error that says what was expected and not found, as in "the text is not UTF-8".
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}
