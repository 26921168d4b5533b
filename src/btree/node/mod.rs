//! A node of the B+ tree: the bytes of sorted records in one or more consecutive pages.
//!
//! The tree is copy-on-write. A node is built once, in one pass, by a [`LeafBuilder`] or an [`InnerBuilder`],
//! [sealed](seal) when its place is known, written, and never changed. What is read from a file is [`check`]ed
//! once; from then on [`Leaf`] and [`Inner`] read it in place.
//!
//! ```text
//! header     32 bytes; all numbers are little-endian
//!              0  checksum     u32   CRC-32C of all that follows in the node's pages, bound to file and offset
//!              4  level        u8    0: a leaf; above: an inner node, one more than its children
//!              5  shift        u8    offsets are in units of 1 << shift bytes: 0 up to 64 KiB, 3 above
//!              6  count        u16   records
//!              8  prefix len   u32
//!             12  used         u32   where the last record ends; behind it, zeros up to the end of the page
//!             16  generation   u64   the checkpoint that wrote the node
//!             24  low          u64   inner node: pointer to the child left of the first separator; leaf: 0
//! hints      16 x u32: the slots are 17 runs of even length, run r from slot r * count / 17 on; hint j is the
//!            first head of run j + 1; 0 if there is no record
//! prefix     what all keys of the node have in common
//! slots      6 bytes for each record, in key order: head u32 | offset u16
//! records    in the order of the slots, one behind the other; each starts at a multiple of 1 << shift, with
//!            zeros before it if need be
//!
//! leaf record    value word varint | suffix length varint | suffix | value, or pointer u64
//! inner record   pointer to the child u64 | suffix length varint | suffix
//! ```
//!
//! A *suffix* is a key without the node's prefix. Its *head* is its first four bytes, padded with zeros, as a
//! big-endian number: heads order like suffixes, and decide nothing only where they are equal. A *value word* is
//! the length of the value twice, plus one if the value is not in the record but in overflow pages that the
//! pointer leads to. A [`Pointer`] is a page number with the number of pages.
//!
//! The separator of an inner record is above all keys of the child to its left, and not above any key of its own
//! child. It is the shortest such key ([`shortest_separator`]), not one that need be in the tree: the prefix B-tree
//! of Bayer and Unterauer ("Prefix B-trees", TODS 1977). Heads in the slots and the hints above them are as in
//! LeanStore (Leis et al., "LeanStore: in-memory data management beyond main memory", ICDE 2018): a search compares
//! the prefix once, counts its way through the hints, which share two cache lines with the header and a short
//! prefix, then looks at one run of slots, and as a rule at one record.
//!
//! Thread safety: views are plain references to bytes that nobody changes; a builder has one owner.
//!
//! Invariants of a checked node, on which views rely: all parts and records are inside; heads, hints and offsets
//! are those the records have; keys ascend strictly and are no longer than `MAX_KEY_LEN`; pointers are possible.

mod check;
mod header;
mod inner;
mod inner_builder;
mod leaf;
mod leaf_builder;
mod pointer;
mod separator;
mod slotted;
mod staging;
#[cfg(test)]
mod tests;

pub(crate) use check::check;
pub(crate) use header::{MAX_NODE_LEN, generation, is_whole, level, prefetch, seal, used};
pub(crate) use inner::Inner;
pub(crate) use inner_builder::InnerBuilder;
pub(crate) use leaf::{Leaf, Parts, Stored, largest_inline};
pub(crate) use leaf_builder::LeafBuilder;
pub(crate) use pointer::Pointer;
