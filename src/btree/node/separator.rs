//! What separates two neighbours.

use crate::base::key::common_prefix_len;

/// How many bytes of `right` are needed to tell it from `left`, the key before it: the shortest prefix of `right`
/// that is above `left`. Cutting the separator of two leaves there keeps inner nodes small (Bayer and
/// Unterauer 1977).
pub(crate) fn shortest_separator(left: &[u8], right: &[u8]) -> usize {
    debug_assert!(left < right);
    common_prefix_len(left, right) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_separates_and_nothing_shorter_does(
            a in proptest::collection::vec(0u8..3, 0..12),
            b in proptest::collection::vec(0u8..3, 0..12),
        ) {
            prop_assume!(a != b);
            let (left, right) = if a < b { (a, b) } else { (b, a) };
            let len = shortest_separator(&left, &right);
            prop_assert!(left[..] < right[..len]);
            prop_assert!(left[..] >= right[..len - 1]);
        }
    }
}
