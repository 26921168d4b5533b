//! The header of a node and the hints behind it; both are drawn in [`node`](super).

use crate::base::checksum;
use crate::base::prefetch;
use crate::planted::{Bug, planted};

/// The bytes of the checksum, which covers all that follows.
const CHECKSUM: usize = 4;
const GENERATION: usize = 16;
const HEADER: usize = 32;
/// How many hints a node has.
pub(super) const HINTS: usize = 16;
/// Where hints end and the prefix begins.
pub(super) const PREFIX: usize = HEADER + 4 * HINTS;

/// The largest node whose record offsets count single bytes.
const LARGEST_FINE: usize = 64 << 10;
/// The shift of larger ones.
const COARSE: u8 = 3;
/// The largest node: what its offsets reach. Nodes that cannot be split, because they have one record or two
/// separators, take much less.
pub(crate) const MAX_NODE_LEN: usize = LARGEST_FINE << COARSE;

/// How much of a node is asked for ahead.
const SEARCHED: usize = 256;
/// What the processor reads at once.
const LINE: usize = 64;

/// The shift of the offsets in a node of `len` bytes.
pub(super) fn shift_for(len: usize) -> u8 {
    if len <= LARGEST_FINE { 0 } else { COARSE }
}

/// What a header says, but for checksum and generation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) level: u8,
    pub(super) shift: u8,
    pub(super) count: usize,
    pub(super) prefix_len: usize,
    pub(super) used: usize,
    pub(super) low: u64,
}

impl Header {
    /// The header that `bytes` begin with; `None` if they are too short for a node.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<PREFIX>()?;
        Some(Self {
            level: bytes[4],
            shift: bytes[5],
            count: usize::from(u16::from_le_bytes([bytes[6], bytes[7]])),
            prefix_len: number(bytes, 8) as usize,
            used: number(bytes, 12) as usize,
            low: long_number(bytes, 24),
        })
    }

    /// Writes the header to the front of `bytes`, but for what [`seal`] writes.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        bytes[4] = self.level;
        bytes[5] = self.shift;
        let count = u16::try_from(self.count).expect("a node has fewer records");
        bytes[6..8].copy_from_slice(&count.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.prefix_len as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.used as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.low.to_le_bytes());
    }
}

#[inline]
fn number(bytes: &[u8; PREFIX], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

#[inline]
fn long_number(bytes: &[u8; PREFIX], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The hints of a node.
#[inline]
pub(super) fn hints(bytes: &[u8]) -> &[[u8; 4]] {
    bytes[HEADER..PREFIX].as_chunks().0
}

/// The same, to be written.
pub(super) fn hints_mut(bytes: &mut [u8]) -> &mut [[u8; 4]] {
    bytes[HEADER..PREFIX].as_chunks_mut().0
}

/// Where run `run` of a node's slots starts, from 0 up to the one behind the last, which starts at the count. Hint
/// `j` is the first head of run `j + 1`.
#[inline]
pub(super) fn run_start(run: usize, count: usize) -> usize {
    run * count / (HINTS + 1)
}

/// The level of a checked node: 0 for a leaf.
#[inline]
pub(crate) fn level(node: &[u8]) -> u8 {
    node[4]
}

/// How many bytes of a checked node are taken.
#[inline]
pub(crate) fn used(node: &[u8]) -> usize {
    u32::from_le_bytes(node[12..16].try_into().expect("4 bytes")) as usize
}

/// The checkpoint that wrote a checked node.
pub(crate) fn generation(node: &[u8]) -> u64 {
    u64::from_le_bytes(node[GENERATION..GENERATION + 8].try_into().expect("8 bytes"))
}

/// Makes a built node fit for its place: the generation is entered, then the checksum, bound to the file named
/// by `identity` and to the node's byte `offset` in it. One pass over the bytes.
pub(crate) fn seal(node: &mut [u8], identity: u64, offset: u64, generation: u64) {
    node[GENERATION..GENERATION + 8].copy_from_slice(&generation.to_le_bytes());
    let sum = checksum::bound(identity, offset, &node[CHECKSUM..]);
    node[..CHECKSUM].copy_from_slice(&sum.to_le_bytes());
}

/// Whether the checksum of a node is the one its bytes and its place have: all that need be asked of a node that has
/// been [checked](super::check) before and is read again.
pub(crate) fn is_whole(node: &[u8], identity: u64, offset: u64) -> bool {
    let sum = checksum::bound(identity, offset, &node[CHECKSUM..]);
    checksum::matches(&node[..CHECKSUM], sum.to_le_bytes()) || planted(Bug::IgnoreNodeChecksum)
}

/// Brings what every search of a node looks at first closer to the processor: header, hints, a short prefix and
/// the first slots.
#[inline]
pub(crate) fn prefetch(node: &[u8]) {
    node[..node.len().min(SEARCHED)].chunks(LINE).for_each(|line| prefetch::prefetch(&line[0]));
}
