//! Whether bytes are a node: done once, when they have been read from a file.

use super::Pointer;
use super::header::{self, HINTS, Header, MAX_NODE_LEN, PREFIX, hints, run_start};
use super::inner::InnerRecord;
use super::leaf::LeafRecord;
use super::slotted::{Record, SLOT, Slot, head};
use crate::base::varint;
use crate::options::{MAX_KEY_LEN, MAX_VALUE_LEN};

/// Checks all pages of a node, read at byte `offset` of the file that `identity` names, and says its level. Views
/// of a node that passes are right and do not panic, whoever made its bytes: those that no builder would make are
/// refused with what is wrong with them. One pass for the checksum, and one over slots and records.
///
/// The keys' place in the tree and the ends of pointers are for the caller to check.
pub(crate) fn check(
    node: &[u8],
    identity: u64,
    offset: u64,
    page_size: usize,
) -> Result<u8, String> {
    let header = Header::read(node).ok_or("a node is shorter than its header")?;
    if !node.len().is_multiple_of(page_size) || node.len() > MAX_NODE_LEN {
        return Err(format!("a node of {} bytes", node.len()));
    }
    if !header::is_whole(node, identity, offset) {
        return Err("the checksum of a node does not match".to_owned());
    }
    let parts = Parts::new(node, header)?;
    if header.level == 0 {
        let prefix_len = header.prefix_len;
        parts.check_records(|record, at, node| value_is_possible(record, at, node, prefix_len))?;
    } else {
        parts.check_records(child_is_possible)?;
    }
    parts.check_hints()?;
    Ok(header.level)
}

/// What a leaf of one record takes besides key and value, or a few bytes more.
const ALONE: usize = PREFIX + 32;

/// A leaf's record: its value's length, its pointer, that it has room in a leaf of its own, and that its numbers are as short as they
/// can be.
fn value_is_possible(record: &LeafRecord, at: usize, node: &[u8], prefix_len: usize) -> bool {
    let word = record.stored_word();
    let suffix = record.suffix();
    word >> 1 <= MAX_VALUE_LEN as u64
        && ALONE + prefix_len + (record.end() - suffix.start) <= MAX_NODE_LEN
        && record.value(node).is_some()
        && suffix.start - at == varint::len(word) + varint::len(suffix.len() as u64)
}

/// An inner node's record: its pointer, and that its number is as short as it can be.
fn child_is_possible(record: &InnerRecord, at: usize, _: &[u8]) -> bool {
    let suffix = record.suffix();
    record.child().is_some()
        && suffix.start - at == size_of::<Pointer>() + varint::len(suffix.len() as u64)
}

/// A node whose header, prefix and slots fit it.
struct Parts<'a> {
    /// The bytes that are used.
    used: &'a [u8],
    header: Header,
    slots: &'a [[u8; SLOT]],
}

impl<'a> Parts<'a> {
    fn new(node: &'a [u8], header: Header) -> Result<Self, String> {
        let Header { level, shift, count, prefix_len, used, low } = header;
        let low_is_possible = match level {
            0 => low == 0,
            _ => Pointer::from_bits(low).is_some(),
        };
        if !low_is_possible {
            return Err(format!("a node of level {level} has the first child {low:#x}"));
        }
        if shift != header::shift_for(node.len()) || prefix_len > MAX_KEY_LEN {
            return Err("the header of a node is impossible".to_owned());
        }
        let slots = (PREFIX + prefix_len)..(PREFIX + prefix_len + count * SLOT);
        let (Some(used), true) = (node.get(..used), slots.end <= header.used) else {
            return Err(format!("{count} slots do not fit a node"));
        };
        Ok(Self { used, header, slots: used[slots].as_chunks().0 })
    }

    /// Walks over the records, which stand one behind the other: so none overlaps another, and the walk is bounded
    /// by the node, whatever the slots say.
    fn check_records<R: Record>(
        &self,
        is_possible: impl Fn(&R, usize, &[u8]) -> bool,
    ) -> Result<(), String> {
        let Header { shift, prefix_len, .. } = self.header;
        let mut end = PREFIX + prefix_len + self.slots.len() * SLOT;
        let mut last: Option<(u32, &[u8])> = None;
        for (index, &slot) in self.slots.iter().enumerate() {
            let slot = Slot::read(slot);
            let at = end.next_multiple_of(1 << shift);
            let whole = |record: &R| is_possible(record, at, self.used);
            let Some(record) = R::read(self.used, at).filter(whole) else {
                return Err(format!("record {index} of a node is impossible"));
            };
            let suffix = &self.used[record.suffix()];
            if usize::from(slot.offset) << shift != at || slot.head != head(suffix) {
                return Err(format!("slot {index} of a node is not that of its record"));
            }
            let ascends = |(head, key): (u32, &[u8])| head < slot.head || key < suffix;
            if !last.is_none_or(ascends) || prefix_len + suffix.len() > MAX_KEY_LEN {
                return Err(format!("key {index} of a node is out of order or too long"));
            }
            last = Some((slot.head, suffix));
            end = record.end();
        }
        if end != self.used.len() || (self.slots.is_empty() && prefix_len > 0) {
            return Err("a node says it has more than its records".to_owned());
        }
        Ok(())
    }

    fn check_hints(&self) -> Result<(), String> {
        let head_of = |index| {
            let slot = self.slots.get(run_start(index + 1, self.slots.len()));
            slot.map_or(0, |&slot| Slot::read(slot).head)
        };
        let stored = hints(self.used).iter().map(|&hint| u32::from_le_bytes(hint));
        if stored.eq((0..HINTS).map(head_of)) {
            Ok(())
        } else {
            Err("the hints of a node are not those of its slots".to_owned())
        }
    }
}
