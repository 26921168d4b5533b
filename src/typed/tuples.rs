//! Codecs of tuples as keys: one part behind the other, all but the last as in front of others.

use super::decode_error::DecodeError;
use super::key::{EncodeKey, KeyCodec, KeyReader, KeyWriter};

/// The codec of a tuple: the type, what it is written from, and the place of each part; the last behind a semicolon.
macro_rules! tuple {
    ($($part:ident $from:ident $at:tt,)*; $last:ident $last_from:ident $last_at:tt) => {
        impl<$($part, $from: EncodeKey<$part>,)* $last, $last_from: EncodeKey<$last>>
            EncodeKey<($($part,)* $last,)> for ($($from,)* $last_from,)
        {
            #[inline]
            fn encode(&self, out: &mut KeyWriter) {
                $(out.part::<$part>(&self.$at);)*
                out.last::<$last>(&self.$last_at);
            }
        }

        impl<$($part: KeyCodec,)* $last: KeyCodec> KeyCodec for ($($part,)* $last,) {
            fn name() -> String {
                format!("({})", [$($part::name(),)* $last::name()].join(", "))
            }
            #[inline]
            fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
                Ok(($(from.part::<$part>()?,)* from.last::<$last>()?,))
            }
        }
    };
}

tuple!(; A P 0);
tuple!(A P 0,; B Q 1);
tuple!(A P 0, B Q 1,; C R 2);
tuple!(A P 0, B Q 1, C R 2,; D S 3);
tuple!(A P 0, B Q 1, C R 2, D S 3,; E T 4);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4,; F U 5);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5,; G V 6);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5, G V 6,; H W 7);
