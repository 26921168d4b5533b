//! What becomes of several values that are put under one key of a skip keyspace.
//!
//! The kinds that everybody needs have names; a function of the program is registered under a name when the database is
//! opened, and only the name is stored.
//!
//! Thread safety: plain data and shared functions, which any thread may call at any time.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Result};

/// What becomes of several values that were put under one key of a skip keyspace since it was last deleted. Chosen with
/// [`KeyspaceOptions::reducer`](crate::KeyspaceOptions::reducer).
///
/// As text, which [`Display`](fmt::Display) gives and [`FromStr`] reads: `last`, `first`, `keep-all`, `concat`, `sum`,
/// `custom:NAME`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Reducer {
    /// The newest is the value.
    #[default]
    Last,
    /// The oldest stays the value.
    First,
    /// Every one stays, in the order they were put; [`Keyspace::get_all`](crate::Keyspace::get_all) gives all of them.
    KeepAll,
    /// They are put one behind the other.
    Concat,
    /// They are numbers and are added up: signed, of 8 bytes, the highest first, as from [`i64::to_be_bytes`]. The sum
    /// wraps around. A put of a value that has not 8 bytes is refused.
    Sum,
    /// A function makes one of them, which was registered under this name, of 1 to 255 bytes, with
    /// [`DatabaseBuilder::reducer`](crate::DatabaseBuilder::reducer). Without it the database can be opened, and reads
    /// that need the function are errors.
    Custom(String),
}

/// Makes one value of several: given the key and its values, oldest first, at least two of them.
///
/// The values come in parts of any size, and the first may be an earlier result, so the function must be a left fold:
/// `f(k, [f(k, [a, b]), c])` must be `f(k, [a, b, c])`. It is called by readers and in the background, by several
/// threads at once, more than once for the same values, and must always give the same.
///
/// If it panics in a read, the panic goes to the reader and changes nothing. If it panics while values are written to files, in the
/// background or in a call that does so, writes are refused as [`Poisoned`](crate::ErrorKind::Poisoned) from then on; nothing that was
/// acknowledged is lost, and the next opening goes on where files and log are.
pub type ReduceFn = dyn Fn(&[u8], &[&[u8]]) -> Vec<u8> + Send + Sync;

/// What the text of a custom reducer begins with.
const CUSTOM: &str = "custom:";
/// The longest name of a function, in bytes.
const MAX_NAME_LEN: usize = 255;

impl Reducer {
    /// An error if it is one that cannot be.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Custom(name) => check_name(name),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Last => "last",
            Self::First => "first",
            Self::KeepAll => "keep-all",
            Self::Concat => "concat",
            Self::Sum => "sum",
            Self::Custom(name) => return write!(f, "{CUSTOM}{name}"),
        })
    }
}

impl FromStr for Reducer {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "last" => Ok(Self::Last),
            "first" => Ok(Self::First),
            "keep-all" => Ok(Self::KeepAll),
            "concat" => Ok(Self::Concat),
            "sum" => Ok(Self::Sum),
            _ => {
                let name = text.strip_prefix(CUSTOM).ok_or_else(|| {
                    Error::Invalid(format!(
                        "unknown reducer {text:?}: one of last, first, keep-all, concat, sum, custom:NAME"
                    ))
                })?;
                check_name(name).map(|()| Self::Custom(name.to_owned()))
            }
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    if (1..=MAX_NAME_LEN).contains(&name.len()) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "a reducer's name has 1 to {MAX_NAME_LEN} bytes; {name:?} has {}",
        name.len()
    )))
}

/// The functions that are registered with a database, by name. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Reducers(Arc<BTreeMap<String, Arc<ReduceFn>>>);

impl Reducers {
    /// Registers a function; one that has the name already gives way.
    pub(crate) fn add(&mut self, name: &str, function: Arc<ReduceFn>) {
        Arc::make_mut(&mut self.0).insert(name.to_owned(), function);
    }

    /// The function called `name`.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<ReduceFn>> {
        self.0.get(name).cloned()
    }

    /// An error if one of the names cannot be.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.keys().try_for_each(|name| check_name(name))
    }

    /// An error if `reducer` needs a function that is not there.
    ///
    /// # Errors
    /// `Invalid`, which says what to do about it.
    pub(crate) fn check_has(&self, reducer: &Reducer) -> Result<()> {
        match reducer {
            Reducer::Custom(name) if !self.0.contains_key(name) => Err(Error::Invalid(format!(
                "no reducer is registered under the name {name:?}: register it with \
                 DatabaseBuilder::reducer before the database is opened"
            ))),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Reducers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(result: Result<impl fmt::Debug>, text: &str) {
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::Invalid(what) if what.contains(text)), "{error}");
    }

    #[test]
    fn text_round_trips() {
        let longest = Reducer::Custom("n".repeat(MAX_NAME_LEN));
        let odd = Reducer::Custom("custom:\u{e9} ".into());
        let plain =
            [Reducer::Last, Reducer::First, Reducer::KeepAll, Reducer::Concat, Reducer::Sum];
        for reducer in plain.into_iter().chain([longest, odd]) {
            assert!(reducer.check().is_ok());
            assert_eq!(reducer.to_string().parse::<Reducer>().unwrap(), reducer);
        }
        assert_eq!("keep-all".parse::<Reducer>().unwrap(), Reducer::KeepAll);
        assert_eq!(Reducer::Custom("max".into()).to_string(), "custom:max");
        assert_eq!(Reducer::default(), Reducer::Last);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in ["", "Last", "keepall", "custom", "sum "] {
            refused(text.parse::<Reducer>(), "one of last, first, keep-all, concat, sum, custom:");
        }
        refused("custom:".parse::<Reducer>(), "1 to 255 bytes");
        refused(format!("custom:{}", "n".repeat(256)).parse::<Reducer>(), "has 256");
        refused(Reducer::Custom(String::new()).check(), "1 to 255 bytes");
    }

    #[test]
    fn functions_are_found_by_name() {
        let mut reducers = Reducers::default();
        assert!(reducers.get("max").is_none());
        let before = reducers.clone();
        let longest = |values: &[&[u8]]| values.iter().max().map_or(Vec::new(), |v| v.to_vec());
        reducers.add("max", Arc::new(|_: &[u8], _: &[&[u8]]| Vec::new()));
        reducers.add("max", Arc::new(move |_: &[u8], values: &[&[u8]]| longest(values)));
        let found = reducers.get("max").unwrap();
        assert_eq!(found(b"key", &[b"1", b"3", b"2"]), b"3");
        assert!(before.get("max").is_none(), "a copy is a copy");
        assert_eq!(format!("{reducers:?}"), r#"{"max"}"#);

        assert!(reducers.check_has(&Reducer::Sum).is_ok() && reducers.check().is_ok());
        assert!(reducers.check_has(&Reducer::Custom("max".into())).is_ok());
        refused(reducers.check_has(&Reducer::Custom("min".into())), "DatabaseBuilder::reducer");
        reducers.add("", Arc::new(|_: &[u8], _: &[&[u8]]| Vec::new()));
        refused(reducers.check(), "1 to 255 bytes");
    }
}
