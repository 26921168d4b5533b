//! What all keys of a range may begin with.

use super::key::{EncodeKey, KeyWriter};
use crate::base::Slice;

/// The beginning of keys of type `K`: of tuples, their first parts; of text and bytes, those they start with.
///
/// A program that has tuples inside of keys of its own may implement it for them.
pub trait KeyPrefix<K> {
    /// Writes what the keys begin with. [`part`](KeyWriter::part) is for whole parts.
    fn encode(&self, out: &mut KeyWriter);
}

impl<K, P: KeyPrefix<K> + ?Sized> KeyPrefix<K> for &P {
    fn encode(&self, out: &mut KeyWriter) {
        (**self).encode(out);
    }
}

impl KeyPrefix<String> for str {
    fn encode(&self, out: &mut KeyWriter) {
        out.last::<String>(self);
    }
}

impl KeyPrefix<Vec<u8>> for [u8] {
    fn encode(&self, out: &mut KeyWriter) {
        out.last::<Vec<u8>>(self);
    }
}

impl KeyPrefix<Slice> for [u8] {
    fn encode(&self, out: &mut KeyWriter) {
        out.last::<Slice>(self);
    }
}

/// A tuple of the first parts of a longer one.
macro_rules! prefix {
    (($($part:ident $from:ident $at:tt),+) [$($more:ident)+]) => {
        impl<$($part, $from: EncodeKey<$part>,)+ $($more),+> KeyPrefix<($($part,)+ $($more,)+)> for ($($from,)+) {
            fn encode(&self, out: &mut KeyWriter) {
                $(out.part::<$part>(&self.$at);)+
            }
        }
    };
}

/// The same for each number of further parts, from those in brackets and one more up to all.
macro_rules! prefixes {
    ($first:tt [$($more:ident)*]) => {};
    ($first:tt [$($more:ident)*] $next:ident $($others:ident)*) => {
        prefix!($first [$($more)* $next]);
        prefixes!($first [$($more)* $next] $($others)*);
    };
}

prefixes!((A P 0) [] B C D E F G H);
prefixes!((A P 0, B Q 1) [] C D E F G H);
prefixes!((A P 0, B Q 1, C R 2) [] D E F G H);
prefixes!((A P 0, B Q 1, C R 2, D S 3) [] E F G H);
prefixes!((A P 0, B Q 1, C R 2, D S 3, E T 4) [] F G H);
prefixes!((A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5) [] G H);
prefixes!((A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5, G V 6) [] H);
