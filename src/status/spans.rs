//! Tables of a run, taken together so that a status stays small however many there are.

use super::Span;

/// So much of a key is shown.
const KEY: usize = 64;
/// Of a run there are at most so many spans.
const SPANS: usize = 512;

/// The front of a key.
pub(crate) fn front(key: &[u8]) -> Vec<u8> {
    key[..key.len().min(KEY)].to_vec()
}

/// The spans of a run's tables, each given with its bytes and its first and last key.
pub(crate) fn spans<'a>(tables: &[(u64, &'a [u8], &'a [u8])]) -> Vec<Span> {
    let together = tables.len().div_ceil(SPANS).max(1);
    let span = |tables: &[(u64, &'a [u8], &'a [u8])]| {
        let [(_, smallest, _), ..] = tables else { return None };
        let [.., (_, _, largest)] = tables else { return None };
        let bytes = tables.iter().map(|(bytes, ..)| *bytes).fold(0, u64::saturating_add);
        let (smallest, largest) = (front(smallest), front(largest));
        Some(Span { smallest, largest, tables: tables.len() as u64, bytes })
    };
    tables.chunks(together).filter_map(span).collect()
}
