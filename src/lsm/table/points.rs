//! The point index: leads from a key straight to its newest entry, or says that the table does not have it. What a get
//! costs with it is one line of the index, and the lines of the entry.
//!
//! It is a hash table that is made once, when the table is complete: lines of 64 bytes with twelve places each. A key lies
//! in the line that the upper half of its hash chooses, or, if that is full, in one of the 63 behind it, and then the lines
//! it was turned away from say so. Of the hash the place has twelve bits, the *tag*: a key that is not in the table meets
//! an equal one once in 400 times. If too many keys meet in one line, as somebody who knows the hash might want, there is
//! no point index.
//!
//! ```text
//! padding length u8 | zeros | line 0, 64 bytes | line 1 | ...       lines lie at multiples of 64 in the file
//!
//! line      tags u16 x 12 | positions u24 x 12 | count u8 | turned away u8 | zeros u16
//! tag       bits 4 to 15: the lower twelve bits of the hash; bits 0 to 3: bits 24 to 27 of the position
//! position  number of the data block, 16 bits; where the entry starts in the block, 12 bits: 4095 if that is further on
//! ```
//!
//! Thread safety: immutable.

use super::Damage;
use crate::base::View;
use crate::base::prefetch::prefetch;

/// The bytes of a line.
const LINE: usize = 64;
/// The places of a line.
const PLACES: usize = 12;
/// How many places of each line are meant to be taken.
const LOAD: usize = 10;
/// In how many lines a key may be.
const REACH: usize = 64;
/// The most blocks that positions can tell apart.
const MOST_BLOCKS: usize = 1 << 16;
/// The bits of a position that say where in its block an entry is.
const OFFSET_BITS: u32 = 12;
/// Stands for all starts that are too far on.
const FAR: u32 = (1 << OFFSET_BITS) - 1;

/// Where in a line the positions, the count and the mark of keys that were turned away are.
const POSITIONS: usize = 2 * PLACES;
const COUNT: usize = POSITIONS + 3 * PLACES;
const TURNED_AWAY: usize = COUNT + 1;

/// Where an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    pub(super) block: usize,
    /// Where in the block it starts; `None` if the block must be searched.
    pub(super) start: Option<usize>,
}

/// What the point index says of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lookup {
    /// It is not in the table.
    Absent,
    /// If it is in the table, its newest entry is there.
    At(Position),
    /// Several keys look like it: it must be searched for.
    Unclear,
}

/// Collects the keys of a table while it is written.
#[derive(Debug, Default)]
pub(super) struct PointsBuilder {
    hashes: Vec<u64>,
    /// For each key, its position as it is stored.
    positions: Vec<u32>,
    /// Which entries of the present block are the newest of their keys.
    firsts: Vec<u32>,
    blocks: usize,
}

impl PointsBuilder {
    /// Adds the key of entry `index` of the block that is being made, which is the key's newest.
    #[inline]
    pub(super) fn add(&mut self, index: usize, hash: u64) {
        if self.blocks < MOST_BLOCKS {
            self.hashes.push(hash);
            self.firsts.push(index as u32);
        }
    }

    /// The block being made is complete; its entries start there.
    pub(super) fn end_block(&mut self, starts: &[u32]) {
        let block = (self.blocks as u32) << OFFSET_BITS;
        let position = |&first: &u32| block | starts[first as usize].min(FAR);
        self.positions.extend(self.firsts.iter().map(position));
        self.firsts.clear();
        self.blocks += 1;
    }

    /// The bytes of memory it takes, for each key those of its hash and of its position.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.hashes[..]) + size_of_val(&self.positions[..])
    }

    /// The bytes that the index would take.
    pub(super) fn encoded_len(&self) -> usize {
        1 + LINE + self.lines() * LINE
    }

    fn lines(&self) -> usize {
        self.hashes.len().div_ceil(LOAD)
    }

    /// The index, to stand at `offset` of the file; `None` if there are no keys, or if they cannot be had in one.
    pub(super) fn build(&self, offset: u64) -> Option<Vec<u8>> {
        if self.blocks > MOST_BLOCKS || self.hashes.is_empty() || self.lines() > u32::MAX as usize {
            return None;
        }
        let padding = (LINE - (offset as usize + 1) % LINE) % LINE;
        let mut bytes = vec![0; 1 + padding + self.lines() * LINE];
        bytes[0] = padding as u8;
        let (lines, _) = bytes[1 + padding..].as_chunks_mut::<LINE>();
        for (&hash, &position) in self.hashes.iter().zip(&self.positions) {
            put(lines, hash, position)?;
        }
        Some(bytes)
    }
}

/// Puts a key where there is room; `None` if there is none.
fn put(lines: &mut [[u8; LINE]], hash: u64, position: u32) -> Option<()> {
    let home = home(hash, lines.len());
    for step in 0..REACH.min(lines.len()) {
        let at = (home + step) % lines.len();
        let line = &mut lines[at];
        let place = usize::from(line[COUNT]);
        if place == PLACES {
            line[TURNED_AWAY] = 1;
            continue;
        }
        let tagged = tag(hash) | (position >> 24) as u16;
        line[2 * place..][..2].copy_from_slice(&tagged.to_le_bytes());
        line[POSITIONS + 3 * place..][..3].copy_from_slice(&position.to_le_bytes()[..3]);
        line[COUNT] += 1;
        return Some(());
    }
    None
}

/// The line that a key should be in.
#[inline]
fn home(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// The tag of a key, with room for the rest of its position.
#[inline]
fn tag(hash: u64) -> u16 {
    (hash as u16) << 4
}

/// The point index of an open table.
#[derive(Debug)]
pub(super) struct PointIndex {
    lines: View,
    /// Whether the bytes are its own, and not lent by a file.
    is_owned: bool,
}

impl PointIndex {
    /// An index in `part`, the bytes of a part of a table, which lend themselves if `lent`.
    pub(super) fn decode(part: View, lent: bool) -> Result<Self, Damage> {
        let damage = Damage("the point index is malformed");
        let padding = usize::from(*part.first().ok_or(damage)?);
        let len = part.len().checked_sub(1 + padding).ok_or(damage)?;
        if len == 0 || len % LINE != 0 {
            return Err(damage);
        }
        let lines = part.into_slice(1 + padding..1 + padding + len);
        let is_owned = !lent || !lines.as_ptr().addr().is_multiple_of(LINE);
        let lines = if is_owned { aligned_copy(&lines) } else { lines };
        Ok(Self { lines, is_owned })
    }

    /// The bytes of memory that it takes.
    pub(super) fn memory(&self) -> usize {
        if self.is_owned { self.lines.len() } else { 0 }
    }

    #[inline]
    fn lines(&self) -> &[[u8; LINE]] {
        self.lines.as_chunks().0
    }

    /// Asks ahead for what [`find`](Self::find) will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let lines = self.lines();
        prefetch(&lines[home(hash, lines.len())]);
    }

    /// What is known of the key with this hash.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> Lookup {
        let lines = self.lines();
        let mut at = home(hash, lines.len());
        let mut found = Lookup::Absent;
        for _ in 0..REACH.min(lines.len()) {
            let line = &lines[at];
            let mut matches = matches(line, tag(hash));
            while matches != 0 {
                if found != Lookup::Absent {
                    return Lookup::Unclear;
                }
                found = Lookup::At(position(line, matches.trailing_zeros() as usize));
                matches &= matches - 1;
            }
            if line[TURNED_AWAY] == 0 {
                break;
            }
            at = if at + 1 == lines.len() { 0 } else { at + 1 };
        }
        found
    }
}

/// The places of a line that are taken by keys with this tag, one bit each.
#[inline]
fn matches(line: &[u8; LINE], tag: u16) -> u32 {
    let (tags, _) = line[..POSITIONS].as_chunks::<2>();
    let mut matches = 0;
    for (place, bytes) in tags.iter().enumerate() {
        matches |= u32::from(u16::from_le_bytes(*bytes) & 0xfff0 == tag) << place;
    }
    matches & ((1 << line[COUNT].min(PLACES as u8)) - 1)
}

#[inline]
fn position(line: &[u8; LINE], place: usize) -> Position {
    let upper = line[2 * place] & 15;
    let at = POSITIONS + 3 * place;
    let position = u32::from_le_bytes([line[at], line[at + 1], line[at + 2], upper]);
    let start = position & FAR;
    Position {
        block: (position >> OFFSET_BITS) as usize,
        start: (start != FAR).then_some(start as usize),
    }
}

/// A copy of `bytes` that begins at a multiple of a line.
fn aligned_copy(bytes: &[u8]) -> View {
    let mut copy = vec![0; bytes.len() + LINE];
    let skip = (LINE - copy.as_ptr().addr() % LINE) % LINE;
    copy[skip..][..bytes.len()].copy_from_slice(bytes);
    View::from(copy).into_slice(skip..skip + bytes.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::hash::hash64;

    /// A builder of blocks with entries that start there; every entry is a key's newest.
    fn built(blocks: &[Vec<(u64, u32)>]) -> PointsBuilder {
        let mut builder = PointsBuilder::default();
        for block in blocks {
            block.iter().enumerate().for_each(|(index, &(hash, _))| builder.add(index, hash));
            builder.end_block(&block.iter().map(|&(_, start)| start).collect::<Vec<_>>());
        }
        builder
    }

    fn opened(builder: &PointsBuilder, offset: u64) -> PointIndex {
        PointIndex::decode(View::from(builder.build(offset).unwrap()), false).unwrap()
    }

    /// So many keys, twenty to a block, every 150 bytes.
    fn many(keys: u64) -> Vec<Vec<(u64, u32)>> {
        let all: Vec<u64> = (0..keys).collect();
        let block = |chunk: &[u64]| {
            let place = |(at, key): (usize, &u64)| (hash64(&key.to_le_bytes()), 150 * at as u32);
            chunk.iter().enumerate().map(place).collect()
        };
        all.chunks(20).map(block).collect()
    }

    #[test]
    fn every_key_is_found_and_few_others() {
        for keys in [1, 9, 10, 11, 79, 1000, 100_000] {
            let blocks = many(keys);
            let points = opened(&built(&blocks), 4096 * keys);
            let mut unclear = 0;
            for (block, entries) in blocks.iter().enumerate() {
                for &(hash, start) in entries {
                    match points.find(hash) {
                        Lookup::At(position) => {
                            assert_eq!(position, Position { block, start: Some(start as usize) });
                        }
                        Lookup::Unclear => unclear += 1,
                        Lookup::Absent => panic!("a key is hidden"),
                    }
                }
            }
            assert!(unclear <= 1 + keys / 100, "{unclear} of {keys} are unclear");
            let other =
                |key: &u64| points.find(hash64(&(key + keys).to_le_bytes())) != Lookup::Absent;
            let found = (0..100_000).filter(other).count();
            let most = if keys < 100_000 { 1200 } else { 600 };
            assert!(found < most, "{found} of 100,000 that are not there look as if they were");
        }
    }

    #[test]
    fn entries_that_start_far_on_are_searched_for() {
        let starts = [0_u32, 4094, 4095, 4096, 1 << 20];
        let block: Vec<_> = starts.iter().map(|&s| (hash64(&s.to_le_bytes()), s)).collect();
        let points = opened(&built(std::slice::from_ref(&block)), 0);
        let found = block.iter().map(|&(hash, _)| match points.find(hash) {
            Lookup::At(Position { block: 0, start }) => start,
            other => panic!("{other:?}"),
        });
        assert_eq!(found.collect::<Vec<_>>(), [Some(0), Some(4094), None, None, None]);
    }

    #[test]
    fn blocks_are_told_apart_up_to_the_most() {
        let blocks: Vec<_> =
            (0..MOST_BLOCKS as u64).map(|b| vec![(hash64(&b.to_le_bytes()), 7)]).collect();
        let points = opened(&built(&blocks), 0);
        for (block, entries) in blocks.iter().enumerate() {
            let found = points.find(entries[0].0);
            let there = Lookup::At(Position { block, start: Some(7) });
            assert!(found == there || found == Lookup::Unclear, "{block}: {found:?}");
        }
        let mut builder = built(&blocks);
        builder.add(0, 1);
        builder.end_block(&[0]);
        assert!(builder.build(0).is_none(), "one block too many");
    }

    #[test]
    fn keys_that_meet_in_one_line_end_it() {
        let same =
            |count: usize| vec![(0..count).map(|i| (i as u64, 30 * i as u32)).collect::<Vec<_>>()];
        // All of them want the first line.
        assert!(built(&same(PLACES * REACH)).build(0).is_some());
        assert!(built(&same(PLACES * REACH + 1)).build(0).is_none());
        // The same hash twice is unclear.
        let points = opened(&built(&[vec![(5, 0), (5, 10), (6, 20)]]), 0);
        assert_eq!(points.find(5), Lookup::Unclear);
        assert!(matches!(points.find(6), Lookup::At(_)));
        assert_eq!(points.find(7), Lookup::Absent);
        assert!(PointsBuilder::default().build(0).is_none(), "no keys");
    }

    #[test]
    fn lines_begin_at_multiples_of_their_size() {
        let builder = built(&many(100));
        for offset in 0..200_u64 {
            let bytes = builder.build(offset).unwrap();
            assert_eq!((offset as usize + 1 + usize::from(bytes[0])) % LINE, 0);
            assert!(bytes.len() <= builder.encoded_len());
            let points = PointIndex::decode(View::from(bytes), offset % 2 == 0).unwrap();
            assert_eq!(points.lines.as_ptr().addr() % LINE, 0);
            assert_ne!(points.find(hash64(&7_u64.to_le_bytes())), Lookup::Absent);
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_lead_somewhere(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
            padding in 0..70_u8,
            hashes in proptest::collection::vec(any::<u64>(), 20),
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = padding;
            }
            if let Ok(points) = PointIndex::decode(View::from(bytes), false) {
                for hash in hashes {
                    points.prefetch(hash);
                    points.find(hash);
                }
            }
        }
    }
}
