//! What becomes of several values of one key.
//!
//! The *operands* of a key are its puts since its newest tombstone, oldest first, as far as the reader sees them.
//! Merging puts what it has made of the older ones in their place, so the first operand may be an earlier
//! result. An operand by itself is the value, whatever the reducer.
//!
//! Thread safety: never changed; a custom function may be called from any thread.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::Slice;
use crate::error::{Error, Result};
use crate::options::MAX_VALUE_LEN;
use crate::reducer::{ReduceFn, Reducer};

/// How much of a key an error shows, in bytes.
const KEY_SHOWN: usize = 40;

/// A reducer, ready to be used.
pub(super) struct Reduce {
    reducer: Reducer,
    custom: Option<Arc<ReduceFn>>,
    /// The keyspace's directory, which errors name.
    dir: PathBuf,
}

impl Reduce {
    /// The reducer of the keyspace in `dir`; `custom` is the function it is named after, if it is registered.
    pub(super) fn new(reducer: Reducer, custom: Option<Arc<ReduceFn>>, dir: &Path) -> Self {
        Self { reducer, custom, dir: dir.to_path_buf() }
    }

    /// Whether its function, if it needs one, is registered.
    pub(super) fn is_ready(&self) -> bool {
        self.custom.is_some() || !matches!(self.reducer, Reducer::Custom(_))
    }

    /// Whether the newest operand is all that counts.
    pub(super) fn only_newest(&self) -> bool {
        self.reducer == Reducer::Last
    }

    /// Whether the newest operand is the value that is shown, be it all that counts or the last of those that are kept.
    pub(super) fn shows_newest(&self) -> bool {
        self.only_newest() || self.keeps_all()
    }

    /// Whether the oldest operand is all that counts.
    pub(super) fn only_oldest(&self) -> bool {
        self.reducer == Reducer::First
    }

    /// Whether what some operands become can take their place, whichever of those that follow each other they are, and is
    /// as small as one.
    pub(super) fn folds(&self) -> bool {
        self.reducer == Reducer::Sum
    }

    /// Whether every operand stays a value of its own.
    pub(super) fn keeps_all(&self) -> bool {
        self.reducer == Reducer::KeepAll
    }

    /// The value that `operands` become, which are not empty, oldest first; or all of them, if all are
    /// [kept](Self::keeps_all).
    ///
    /// # Errors
    /// `Invalid` if the value would be too large; `Corruption` if an operand is not one that can have been put;
    /// `Unsupported` if the function is not registered.
    pub(super) fn reduce(&self, key: &[u8], mut operands: Vec<Slice>) -> Result<Vec<Slice>> {
        if operands.len() == 1 {
            return Ok(operands);
        }
        let value = match &self.reducer {
            Reducer::KeepAll => return Ok(operands),
            Reducer::Last => operands[operands.len() - 1].clone(),
            Reducer::First => operands[0].clone(),
            Reducer::Concat => concat(key, &operands)?.into(),
            Reducer::Sum => self.sum(key, &operands)?.into(),
            Reducer::Custom(name) => self.call(name, key, &operands)?.into(),
        };
        operands.clear();
        operands.push(value);
        Ok(operands)
    }

    fn sum(&self, key: &[u8], operands: &[Slice]) -> Result<Vec<u8>> {
        let mut sum = 0_i64;
        for operand in operands {
            let number = <[u8; 8]>::try_from(&operand[..]).map_err(|_| {
                let (key, len) = (shown(key), operand.len());
                let what =
                    format!("a value of key {key} has {len} bytes; to be added up it must have 8");
                Error::corruption(&self.dir, 0, what)
            })?;
            sum = sum.wrapping_add(i64::from_be_bytes(number));
        }
        Ok(sum.to_be_bytes().to_vec())
    }

    fn call(&self, name: &str, key: &[u8], operands: &[Slice]) -> Result<Vec<u8>> {
        let function = self.custom.as_ref().ok_or_else(|| {
            Error::Unsupported(format!(
                "key {} of {} has several values, and the reducer {name:?} that makes one of them is not \
                 registered; give it to `DatabaseBuilder::reducer` when the database is opened",
                shown(key),
                self.dir.display()
            ))
        })?;
        let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
        let value = function(key, &operands);
        check_len(key, value.len())?;
        Ok(value)
    }
}

impl fmt::Debug for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reduce({:?})", self.reducer)
    }
}

fn concat(key: &[u8], operands: &[Slice]) -> Result<Vec<u8>> {
    let len = operands.iter().map(|operand| operand.len()).sum();
    check_len(key, len)?;
    let mut value = Vec::with_capacity(len);
    operands.iter().for_each(|operand| value.extend_from_slice(operand));
    Ok(value)
}

/// An error if the values of `key` become one of `len` bytes that is too large.
fn check_len(key: &[u8], len: usize) -> Result<()> {
    if len <= MAX_VALUE_LEN {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the values of key {} become one of {len} bytes, which is too large: the limit is {MAX_VALUE_LEN}; \
         delete the key, then write less to it",
        shown(key)
    )))
}

/// The start of a key, as text.
fn shown(key: &[u8]) -> String {
    let more = if key.len() > KEY_SHOWN { "..." } else { "" };
    format!("\"{}\"{more}", key[..key.len().min(KEY_SHOWN)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn with(reducer: Reducer, custom: Option<Arc<ReduceFn>>) -> Reduce {
        Reduce::new(reducer, custom, Path::new("/db/keyspaces/1"))
    }

    fn run(reduce: &Reduce, operands: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let operands = operands.iter().map(|&operand| Slice::from(operand)).collect();
        let values = reduce.reduce(b"key", operands)?;
        Ok(values.iter().map(|value| value.to_vec()).collect())
    }

    /// Each operand in brackets, behind the key.
    fn bracket(key: &[u8], operands: &[&[u8]]) -> Vec<u8> {
        assert!(operands.len() > 1);
        operands.iter().fold(key.to_vec(), |all, operand| [&all, &b"["[..], operand, b"]"].concat())
    }

    #[test]
    fn each_reducer_makes_its_value() {
        let custom = || Reducer::Custom("bracket".into());
        let cases: [(Reducer, &[&[u8]]); 5] = [
            (Reducer::Last, &[b"c"]),
            (Reducer::First, &[b"a"]),
            (Reducer::KeepAll, &[b"a", b"b", b"c"]),
            (Reducer::Concat, &[b"abc"]),
            (custom(), &[b"key[a][b][c]"]),
        ];
        for (reducer, expected) in cases {
            let reduce = with(reducer.clone(), Some(Arc::new(bracket)));
            assert_eq!(run(&reduce, &[b"a", b"b", b"c"]).unwrap(), expected, "{reducer:?}");
            assert_eq!(run(&reduce, &[b"alone"]).unwrap(), [b"alone"], "{reducer:?}");
            assert_eq!(reduce.only_newest(), reducer == Reducer::Last);
            assert_eq!(reduce.keeps_all(), reducer == Reducer::KeepAll);
        }
    }

    #[test]
    fn sums_wrap_and_take_nothing_but_numbers() {
        let sum = with(Reducer::Sum, None);
        let add = |numbers: &[i64]| {
            let numbers: Vec<_> = numbers.iter().map(|number| number.to_be_bytes()).collect();
            let operands: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
            let values = run(&sum, &operands).unwrap();
            assert_eq!(values.len(), 1);
            i64::from_be_bytes(values[0][..].try_into().unwrap())
        };
        assert_eq!(add(&[1, -3]), -2);
        assert_eq!(add(&[i64::MAX, 2, 1]), i64::MIN + 2);
        for wrong in [&b""[..], b"1234567", b"123456789"] {
            let error = run(&sum, &[&1_i64.to_be_bytes(), wrong]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            assert!(
                error.to_string().contains("/db/keyspaces/1")
                    && error.to_string().contains("\"key\"")
            );
            assert_eq!(run(&sum, &[wrong]).unwrap(), [wrong], "alone it is itself");
        }
    }

    #[test]
    fn a_function_that_is_not_registered_is_asked_for() {
        let reduce = with(Reducer::Custom("newest three".into()), None);
        assert_eq!(run(&reduce, &[b"alone"]).unwrap(), [b"alone"]);
        let error = run(&reduce, &[b"a", b"b"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(
            text.contains("newest three") && text.contains("DatabaseBuilder::reducer"),
            "{text}"
        );
    }

    #[test]
    fn values_that_become_too_large_are_errors() {
        let half = Slice::from(vec![0; MAX_VALUE_LEN / 2 + 1]);
        let error =
            with(Reducer::Concat, None).reduce(b"key", vec![half.clone(), half]).unwrap_err();
        assert!(matches!(&error, Error::Invalid(what) if what.contains("too large")), "{error}");
        assert!(check_len(b"key", MAX_VALUE_LEN).is_ok());
        let grow = |_: &[u8], _: &[&[u8]]| vec![0; MAX_VALUE_LEN + 1];
        let reduce = with(Reducer::Custom("grow".into()), Some(Arc::new(grow)));
        assert!(matches!(run(&reduce, &[b"a", b"b"]), Err(Error::Invalid(_))));
    }

    #[test]
    fn errors_show_the_start_of_a_key() {
        assert_eq!(shown(b"k\0\xff"), "\"k\\x00\\xff\"");
        assert_eq!(shown(&[b'k'; 50]), format!("\"{}\"...", "k".repeat(40)));
    }
}
