//! What becomes of several values of one key.

/// What a key's value is when several have been put.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Reducer {
    /// The newest.
    #[default]
    Last,
    /// The oldest.
    First,
    /// All of them, in the order they were put.
    KeepAll,
    /// One behind the other, in the order they were put.
    Concat,
    /// Their sum, as 8-byte big-endian signed integers, wrapping around.
    Sum,
    /// What a function of this name makes of them.
    Custom(String),
}

/// Makes one value of a key and at least two of its values, oldest first. The first may be what an earlier call gave.
pub type ReduceFn = dyn Fn(&[u8], &[&[u8]]) -> Vec<u8> + Send + Sync;
