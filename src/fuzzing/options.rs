//! Text that users give as options: what can be read is written as text that reads the same.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use crate::error::Error;
use crate::options::{
    CompactionLock, Compression, Durability, EngineKind, FilterKind, KeyFile, Level, MemtableKind,
    Policy,
};
use crate::reducer::Reducer;
use crate::vfs::Layer;

/// Reads text as an option of each kind.
pub(super) fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    there_and_back::<CompactionLock>(text);
    there_and_back::<Compression>(text);
    there_and_back::<Durability>(text);
    there_and_back::<EngineKind>(text);
    there_and_back::<FilterKind>(text);
    there_and_back::<KeyFile>(text);
    there_and_back::<Layer>(text);
    there_and_back::<Level>(text);
    there_and_back::<MemtableKind>(text);
    there_and_back::<Policy>(text);
    there_and_back::<Reducer>(text);
}

fn there_and_back<T>(text: &str)
where
    T: FromStr<Err = Error> + Display + PartialEq + Debug,
{
    match text.parse::<T>() {
        Ok(option) => assert_eq!(option.to_string().parse::<T>().ok().as_ref(), Some(&option)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Options as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(super) fn seeds() -> Vec<Vec<u8>> {
    [
        "sync",
        "range-level",
        "hash",
        "pos-direct-cache",
        "zstd-dict:19",
        "keys+filter",
        "hash-linklist:300",
        "levelled:10",
        "fifo:4000000000",
        "tiering:2,levelling:4000000B,tiering:7",
        "custom:most",
    ]
    .map(Into::into)
    .to_vec()
}
