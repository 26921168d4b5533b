//! The index: finds the one block that can hold an entry.
//!
//! ```text
//! for each data block, in order:
//!   stored length varint | trailer varint | separator length varint | separator
//! ```
//!
//! `(separator, trailer)` is not before the block's last entry and is before the next block's first one.
//! Where the two have different user keys the separator is cut as short as that allows, and the trailer
//! is 0, behind every version; where a block ends among the versions of one key, it is that last entry.
//! Blocks lie end to end from the start of the file, so lengths say where they are.
//!
//! In memory the index is flat arrays. A search is binary over 8-byte heads (what follows the common
//! prefix of all separators); only where heads are equal are separators compared.

use std::ops::Range;

use super::{Damage, stored};
use crate::base::key::{common_prefix_len, compare, head_behind};
use crate::base::{Trailer, varint};

/// Collects the index of a table while it is written.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    bytes: Vec<u8>,
}

impl IndexBuilder {
    /// Adds a block of `stored_len` bytes that ends with `last`; `next` is the entry behind it.
    pub(super) fn add(
        &mut self,
        stored_len: usize,
        last: (&[u8], Trailer),
        next: Option<(&[u8], Trailer)>,
    ) {
        let (separator, trailer) = separator(last, next.map(|(key, _)| key));
        varint::put(&mut self.bytes, stored_len as u64);
        varint::put(&mut self.bytes, trailer.bits());
        varint::put_prefixed(&mut self.bytes, separator);
    }

    /// The bytes of the index so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// The shortest key of two candidates that is not before the last entry and before all of `next`.
fn separator<'a>(
    (last, trailer): (&'a [u8], Trailer),
    next: Option<&'a [u8]>,
) -> (&'a [u8], Trailer) {
    let Some(next) = next else { return (last, trailer) };
    if last == next {
        return (last, trailer);
    }
    let cut = common_prefix_len(last, next) + 1;
    if cut < next.len() && cut < last.len() {
        (&next[..cut], Trailer::OLDEST)
    } else {
        (last, Trailer::OLDEST)
    }
}

/// The index of an open table.
#[derive(Debug)]
pub(super) struct Index {
    heads: Box<[u64]>,
    /// Where each separator starts in `keys`, and the end of the last. None if keys are not kept.
    key_starts: Box<[u32]>,
    keys: Box<[u8]>,
    /// The blocks whose trailers are not [`OLDEST`](Trailer::OLDEST), ascending: the last one, and those that end among the
    /// versions of a key.
    trailers: Box<[(u32, Trailer)]>,
    offsets: Offsets,
    /// How many leading bytes all separators share.
    prefix: usize,
}

/// Where each block starts in the file, and the end of the last.
#[derive(Debug)]
enum Offsets {
    Short(Box<[u32]>),
    Long(Box<[u64]>),
}

impl Offsets {
    fn new(offsets: Vec<u64>) -> Self {
        let short = || offsets.iter().map(|&offset| u32::try_from(offset).ok()).collect();
        match short() {
            Some(short) => Self::Short(short),
            None => Self::Long(offsets.into()),
        }
    }

    /// The number of blocks.
    #[inline]
    fn blocks(&self) -> usize {
        let offsets = match self {
            Self::Short(offsets) => offsets.len(),
            Self::Long(offsets) => offsets.len(),
        };
        offsets - 1
    }

    #[inline]
    fn get(&self, block: usize) -> u64 {
        match self {
            Self::Short(offsets) => offsets[block].into(),
            Self::Long(offsets) => offsets[block],
        }
    }

    /// How many of them, from the first one on, are like this.
    fn partition_point(&self, is_so: impl Fn(u64) -> bool) -> usize {
        match self {
            Self::Short(offsets) => offsets.partition_point(|&offset| is_so(offset.into())),
            Self::Long(offsets) => offsets.partition_point(|&offset| is_so(offset)),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Short(offsets) => size_of_val(&offsets[..]),
            Self::Long(offsets) => size_of_val(&offsets[..]),
        }
    }
}

/// An index that is being read.
struct Fences {
    key_starts: Vec<u32>,
    keys: Vec<u8>,
    trailers: Vec<(u32, Trailer)>,
    offsets: Vec<u64>,
}

impl Fences {
    fn take(&mut self, rest: &mut &[u8]) -> Option<()> {
        let Fence { len, trailer, key } = take_fence(rest)?;
        let block = u32::try_from(self.key_starts.len() - 1).ok()?;
        let end = *self.offsets.last().expect("it begins with one");
        self.offsets.push(end.checked_add(u64::from(len))?);
        self.keys.extend_from_slice(key);
        self.key_starts.push(u32::try_from(self.keys.len()).ok()?);
        if trailer != Trailer::OLDEST {
            self.trailers.push((block, trailer));
        }
        Some(())
    }
}

/// What the index says of a block.
struct Fence<'a> {
    len: u32,
    trailer: Trailer,
    key: &'a [u8],
}

fn take_fence<'a>(rest: &mut &'a [u8]) -> Option<Fence<'a>> {
    let len = u32::try_from(varint::take(rest)?).ok()?;
    let trailer = Trailer::from_table_bits(varint::take(rest)?)?;
    let key = varint::take_prefixed(rest)?;
    (len as usize > stored::TRAILER).then_some(Fence { len, trailer, key })
}

impl Index {
    /// Reads an index that must name blocks of `data_len` bytes in all.
    pub(super) fn decode(bytes: &[u8], data_len: u64) -> Result<Self, Damage> {
        if bytes.len() > u32::MAX as usize {
            return Err(Damage("the index is too large"));
        }
        let mut fences = Fences {
            key_starts: vec![0],
            keys: Vec::new(),
            trailers: Vec::new(),
            offsets: vec![0],
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            fences.take(&mut rest).ok_or(Damage("the index is malformed"))?;
        }
        let Fences { key_starts, keys, trailers, offsets } = fences;
        if offsets.last() != Some(&data_len) {
            return Err(Damage("the index does not fit the data"));
        }
        let mut index = Self {
            heads: Box::default(),
            key_starts: key_starts.into(),
            keys: keys.into(),
            trailers: trailers.into(),
            offsets: Offsets::new(offsets),
            prefix: 0,
        };
        index.check_order()?;
        index.make_heads();
        Ok(index)
    }

    /// The number of blocks.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.offsets.blocks()
    }

    /// Forgets all but where the blocks are, to take less memory: nothing can be found from then on.
    pub(super) fn forget_keys(&mut self) {
        *self = Self {
            heads: Box::default(),
            key_starts: Box::default(),
            keys: Box::default(),
            trailers: Box::default(),
            offsets: std::mem::replace(&mut self.offsets, Offsets::Short(Box::default())),
            prefix: 0,
        };
    }

    /// Whether something can be found.
    #[inline]
    pub(super) fn has_keys(&self) -> bool {
        self.len() == 0 || self.key_starts.len() > self.len()
    }

    /// What [`find`](Self::find) gives, for the index in `bytes`, which was decoded once. Cost: all of it is walked over,
    /// up to the block.
    pub(super) fn find_in_place(
        mut bytes: &[u8],
        key: &[u8],
        trailer: Trailer,
    ) -> Result<usize, Damage> {
        let mut blocks = 0;
        while !bytes.is_empty() {
            let fence = take_fence(&mut bytes).ok_or(Damage("the index is malformed"))?;
            if compare((fence.key, fence.trailer), (key, trailer)).is_ge() {
                break;
            }
            blocks += 1;
        }
        Ok(blocks)
    }

    /// The block that holds the first entry not before `(key, trailer)`; the number of blocks if all
    /// entries are before it.
    #[inline]
    pub(super) fn find(&self, key: &[u8], trailer: Trailer) -> usize {
        let wanted = head_behind(self.prefix(), key);
        let low = self.heads.partition_point(|&head| head < wanted);
        if self.heads.get(low) != Some(&wanted) {
            return low;
        }
        self.find_among_equals(low, wanted, key, trailer)
    }

    /// Where block `block` stands in the file, with its stored trailer.
    #[inline]
    pub(super) fn range(&self, block: usize) -> Range<u64> {
        self.offsets.get(block)..self.offsets.get(block + 1)
    }

    /// Where blocks `blocks` stand in the file.
    pub(super) fn range_of(&self, blocks: Range<usize>) -> Range<u64> {
        self.offsets.get(blocks.start)..self.offsets.get(blocks.end)
    }

    /// The separator behind block `block`.
    #[inline]
    pub(super) fn separator(&self, block: usize) -> (&[u8], Trailer) {
        let key = self.key_starts[block] as usize..self.key_starts[block + 1] as usize;
        let found = self.trailers.binary_search_by_key(&(block as u32), |&(block, _)| block);
        (&self.keys[key], found.map_or(Trailer::OLDEST, |at| self.trailers[at].1))
    }

    /// Keys behind about every `bytes` bytes of blocks, each with the bytes in front of it that are behind the last one: not
    /// before any key there. None if nothing can be found.
    pub(super) fn samples(&self, bytes: u64) -> Vec<(Vec<u8>, u64)> {
        let mut samples = Vec::new();
        let mut first = 0;
        while self.has_keys() && first < self.len() {
            let blocks = self.run_from(first, bytes);
            first = blocks.end;
            let range = self.range_of(blocks);
            samples.push((self.separator(first - 1).0.to_vec(), range.end - range.start));
        }
        samples
    }

    /// The blocks to read in one go: `first` and what follows it, up to `bytes`.
    pub(super) fn run_from(&self, first: usize, bytes: u64) -> Range<usize> {
        let limit = self.offsets.get(first).saturating_add(bytes);
        let end = self.offsets.partition_point(|offset| offset <= limit) - 1;
        first..end.max(first + 1)
    }

    /// The blocks to read in one go: `last` and what is in front of it, up to `bytes`.
    pub(super) fn run_up_to(&self, last: usize, bytes: u64) -> Range<usize> {
        let limit = self.offsets.get(last + 1).saturating_sub(bytes);
        let start = self.offsets.partition_point(|offset| offset < limit);
        start.min(last)..last + 1
    }

    /// The bytes of memory the index takes.
    pub(super) fn memory(&self) -> usize {
        let Self { heads, key_starts, keys, trailers, offsets, prefix: _ } = self;
        size_of_val(&heads[..])
            + size_of_val(&key_starts[..])
            + size_of_val(&keys[..])
            + size_of_val(&trailers[..])
            + offsets.memory()
    }

    fn prefix(&self) -> &[u8] {
        &self.keys[..self.prefix]
    }

    fn check_order(&self) -> Result<(), Damage> {
        let ordered = |i| compare(self.separator(i - 1), self.separator(i)).is_lt();
        if (1..self.len()).all(ordered) { Ok(()) } else { Err(Damage("the index is out of order")) }
    }

    /// Separators are ordered, so the first and the last share what all share.
    fn make_heads(&mut self) {
        let Some(last) = self.len().checked_sub(1) else { return };
        self.prefix = common_prefix_len(self.separator(0).0, self.separator(last).0);
        let head = |i| head_behind(self.prefix(), self.separator(i).0);
        self.heads = (0..self.len()).map(head).collect();
    }

    fn find_among_equals(&self, low: usize, head: u64, key: &[u8], trailer: Trailer) -> usize {
        let equal = self.heads[low..].partition_point(|&other| other == head);
        let (mut low, mut high) = (low, low + equal);
        while low < high {
            let middle = low.midpoint(high);
            if compare(self.separator(middle), (key, trailer)).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Kind;

    fn put(seqno: u64) -> Trailer {
        Trailer::new(seqno, Kind::Put)
    }

    #[test]
    fn separators_are_short_and_separate() {
        let cases: [(&[u8], &[u8], &[u8]); 6] = [
            (b"apple-pie", b"banana", b"b"),
            (b"abcdef", b"abd", b"abcdef"),
            (b"abcdef", b"abdx", b"abd"),
            (b"ab", b"abc", b"ab"),
            (b"", b"a", b""),
            (b"a", b"bcd", b"a"),
        ];
        for (last, next, expected) in cases {
            let found = separator((last, put(5)), Some(next));
            assert_eq!(found, (expected, Trailer::OLDEST));
            assert!(compare((last, Trailer::OLDEST), found).is_le());
            assert!(compare(found, (next, Trailer::NEWEST)).is_lt());
        }
        assert_eq!(separator((b"k", put(5)), Some(b"k")), (&b"k"[..], put(5)));
        assert_eq!(separator((b"k", put(5)), None), (&b"k"[..], put(5)));
    }

    fn sample() -> (Vec<u8>, u64) {
        let mut builder = IndexBuilder::default();
        builder.add(100, (b"prefix-a", put(3)), Some((b"prefix-a", put(2))));
        builder.add(10, (b"prefix-a", put(1)), Some((b"prefix-abcdefghij1", put(9))));
        builder.add(20, (b"prefix-abcdefghij1", put(9)), Some((b"prefix-abcdefghij2", put(9))));
        builder.add(30, (b"prefix-z", put(9)), None);
        (builder.finish(), 160)
    }

    #[test]
    fn finds_blocks() {
        let (bytes, len) = sample();
        let mut index = Index::decode(&bytes, len).expect("whole");
        assert_eq!(index.prefix(), b"prefix-");
        let cases: [(&[u8], Trailer, usize); 9] = [
            (b"", put(1), 0),
            (b"prefix-a", Trailer::NEWEST, 0),
            (b"prefix-a", put(3), 0),
            (b"prefix-a", put(2), 1),
            (b"prefix-a", Trailer::OLDEST, 1),
            (b"prefix-abcdefghij1", put(1), 2),
            (b"prefix-abcdefghij2", put(1), 3),
            (b"prefix-z", Trailer::OLDEST, 4),
            (b"q", put(1), 4),
        ];
        for (key, trailer, block) in cases {
            assert_eq!(index.find(key, trailer), block, "{}", key.escape_ascii());
            assert_eq!(Index::find_in_place(&bytes, key, trailer), Ok(block));
        }
        assert_eq!(index.range(1), 100..110);
        assert_eq!(index.run_from(0, 0), 0..1);
        assert_eq!(index.run_from(0, 110), 0..2);
        assert_eq!(index.run_from(1, 1000), 1..4);
        assert_eq!(index.run_up_to(3, 0), 3..4);
        assert_eq!(index.run_up_to(3, 50), 2..4);
        assert_eq!(index.run_up_to(3, 1000), 0..4);
        assert_eq!(index.range_of(1..3), 100..130);
        assert!(index.has_keys());
        index.forget_keys();
        assert!(!index.has_keys());
        assert_eq!((index.len(), index.memory(), index.range(1)), (4, 5 * 4, 100..110));
    }

    #[test]
    fn offsets_of_a_long_table_are_those_of_a_short_one() {
        for far in [0, u64::from(u32::MAX) - 30, 1 << 40] {
            let offsets = Offsets::new(vec![far, far + 10, far + 30]);
            assert_eq!(matches!(offsets, Offsets::Short(_)), far < 1 << 32);
            assert_eq!((offsets.blocks(), offsets.get(1), offsets.get(2)), (2, far + 10, far + 30));
            assert_eq!(offsets.partition_point(|offset| offset <= far + 10), 2);
            assert_eq!(offsets.memory(), if far < 1 << 32 { 12 } else { 24 });
        }
    }

    #[test]
    fn a_malformed_index_is_refused() {
        let (bytes, len) = sample();
        assert!(Index::decode(&bytes, len + 1).is_err());
        for cut in 0..bytes.len() {
            assert!(Index::decode(&bytes[..cut], len).is_err());
        }
        let mut twice = bytes.clone();
        twice.extend_from_slice(&bytes);
        assert_eq!(
            Index::decode(&twice, 2 * len).unwrap_err(),
            Damage("the index is out of order")
        );
        assert_eq!(Index::decode(&[], 0).map(|index| index.len()), Ok(0));
    }
}
