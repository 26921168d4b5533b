//! What the index says about records: where they lie, and how long they are at most.
//!
//! ```text
//! address := unit within the slot (17 bits), slot (23 bits)                     in units of 8 bytes
//! entry   := address (bits 0..40), size class (40..46), whether a tombstone (46)
//! ```
//!
//! Size classes are the numbers of at most three significant bits: 1, 2, .. 8, 10, 12, 14, 16, 20, .. A
//! record is in the smallest class that is not below its length.

/// The bits of an address that say where in its slot a record lies: a slot is 1 MiB.
const UNIT_BITS: u32 = 17;
const CLASS_SHIFT: u32 = Address::BITS;
const TOMBSTONE_SHIFT: u32 = CLASS_SHIFT + 6;
/// The class of records that are longer than the largest size a class stands for, 7 << 14 units.
const UNBOUNDED: u32 = 63;

/// Where a record lies, in units of 8 bytes. No record lies at unit 0 of slot 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Address(u64);

impl Address {
    /// How many bits an address has.
    pub(crate) const BITS: u32 = 40;

    /// The address of unit `unit` of slot `slot`.
    #[inline]
    pub(crate) fn new(slot: u32, unit: u32) -> Self {
        debug_assert!(slot < 1 << (Self::BITS - UNIT_BITS) && unit < 1 << UNIT_BITS);
        Self(u64::from(slot) << UNIT_BITS | u64::from(unit))
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        (self.0 >> UNIT_BITS) as u32
    }

    #[inline]
    pub(crate) fn unit(self) -> u32 {
        self.0 as u32 & ((1 << UNIT_BITS) - 1)
    }

    #[cfg(test)]
    pub(super) fn bits(self) -> u64 {
        self.0
    }
}

/// What the index knows of one record. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    /// How many bits an entry has.
    pub(super) const BITS: u32 = TOMBSTONE_SHIFT + 1;

    /// The entry of a record of `units` times 8 bytes, at least 1.
    #[inline]
    pub(crate) fn new(address: Address, units: u32, is_tombstone: bool) -> Self {
        debug_assert!(address.0 != 0 && units > 0);
        let class = u64::from(class_of(units));
        Self(address.0 | class << CLASS_SHIFT | u64::from(is_tombstone) << TOMBSTONE_SHIFT)
    }

    /// The entry in the low bits of a word.
    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        Self(word & ((1 << Self::BITS) - 1))
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// All that an entry says, in 47 bits.
    #[inline]
    pub(crate) fn packed(self) -> u64 {
        self.0
    }

    /// The entry that was [`packed`](Self::packed); `None` if none can have been.
    pub(crate) fn from_packed(bits: u64) -> Option<Self> {
        (bits >> Self::BITS == 0).then_some(Self(bits)).filter(|entry| entry.address().0 != 0)
    }

    #[inline]
    pub(crate) fn address(self) -> Address {
        Address(self.0 & ((1 << Address::BITS) - 1))
    }

    #[inline]
    pub(crate) fn is_tombstone(self) -> bool {
        self.0 >> TOMBSTONE_SHIFT != 0
    }

    /// A bound on the record's length in units of 8 bytes, at most a quarter too large. `None` if the record
    /// is longer than 896 KiB.
    #[inline]
    pub(crate) fn units_at_most(self) -> Option<u32> {
        match (self.0 >> CLASS_SHIFT) as u32 & UNBOUNDED {
            UNBOUNDED => None,
            class if class < 4 => Some(class + 1),
            class => Some(((class & 3) + 5) << (class / 4 - 1)),
        }
    }
}

/// The smallest class for `units`.
#[inline]
fn class_of(units: u32) -> u32 {
    let last = units - 1;
    if last < 4 {
        return last;
    }
    let shift = last.ilog2() - 2;
    (4 * shift + (last >> shift)).min(UNBOUNDED)
}

/// How many entries are kept without an allocation.
const INLINE: usize = 8;

/// The entries found for one hash. Can be used again; allocates only when there are more than eight.
#[derive(Debug)]
pub(crate) struct Found {
    len: usize,
    inline: [Entry; INLINE],
    /// All entries, when there are too many.
    spilled: Vec<Entry>,
}

impl Found {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { len: 0, inline: [Entry(0); INLINE], spilled: Vec::new() }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Entry] {
        self.inline.get(..self.len).unwrap_or(&self.spilled)
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        match self.inline.get_mut(self.len) {
            Some(place) => *place = entry,
            None => self.spill(entry),
        }
        self.len += 1;
    }

    #[cold]
    fn spill(&mut self, entry: Entry) {
        if self.len == INLINE {
            self.spilled.clear();
            self.spilled.extend(self.inline);
        }
        self.spilled.push(entry);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_bounded_closely() {
        let bound = |units| Entry::new(Address(1), units, true).units_at_most();
        let largest = 7 << 14;
        let mut last = 0;
        for units in 1..=largest {
            let bound = bound(units).unwrap();
            assert!(bound >= units && 4 * bound <= 5 * units && bound >= last, "{units}: {bound}");
            last = bound;
        }
        assert_eq!(last, largest);
        assert_eq!([largest + 1, 1 << 17, u32::MAX].map(bound), [None; 3]);
    }

    #[test]
    fn found_spills_and_starts_again() {
        let mut found = Found::new();
        for round in 0..3 {
            for len in 0..20u32 {
                let entries: Vec<_> =
                    (0..len).map(|i| Entry::new(Address::new(1 + i, round), 1, false)).collect();
                found.clear();
                entries.iter().for_each(|&entry| found.push(entry));
                assert_eq!(found.as_slice(), entries);
            }
        }
    }

    proptest! {
        #[test]
        fn parts_come_back(slot in 0u32..1 << 23, unit in 1u32..1 << 17, units in 1u32.., dead: bool) {
            let address = Address::new(slot, unit);
            prop_assert_eq!((address.slot(), address.unit()), (slot, unit));
            let entry = Entry::new(address, units, dead);
            prop_assert_eq!((entry.address(), entry.is_tombstone()), (address, dead));
            prop_assert!(entry.units_at_most().is_none_or(|bound| bound >= units));
            prop_assert_eq!(Entry::from_packed(entry.packed()), Some(entry));
            prop_assert_eq!(Entry::from_packed(entry.packed() | 1 << 47), None);
            prop_assert_eq!(Entry::from_packed(entry.packed() & !0xff_ffff_ffff), None);
            prop_assert_eq!(Entry::from_word(entry.bits() | 0x1ffff << 47), entry);
        }
    }
}
