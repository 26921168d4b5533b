//! The block: some KiB of records in order, or of links.
//!
//! ```text
//! offset  size
//!      0     4  checksum of all that follows, bound to (identity of the file, offset of the block)
//!      4     4  bytes of the block
//!      8     4  records
//!     12     4  where the values begin
//!     16     4  where the values end; zeros behind them
//!     20     2  bytes of the prefix that all keys share
//!     22     1  flags: 1 records have trailers, 2 wide links
//!     23     1  step: every so many-th record has a link; 0: none has
//!     24        the prefix
//!               links of records step, 2 step, ...: where the key begins, where the value begins,
//!               from the first one's on; u16 each, wide ones u32
//!               keys: suffix length varint, value length varint, trailer u64 if there are any, suffix
//!               values
//! ```
//! All numbers are little-endian. Keys lie together, so that a search touches few lines of memory, and one behind the
//! other without a table: a search bisects the links and then reads up to `step` keys. Where a value is follows from
//! the lengths of those before it.
//!
//! Hostile bytes give damage, never a panic: every length is checked where it is used.

use std::cmp::Ordering;
use std::ops::Range;

use crate::base::key::{common_prefix_len, compare, head};
use crate::base::{Trailer, checksum, varint};
use crate::planted::{Bug, planted};

/// Bytes in front of the prefix.
const HEADER: usize = 24;
const CHECKSUM: usize = 4;
const TRAILERS: u8 = 1;
const WIDE: u8 = 2;

/// Bytes that are not what was written, and why; where they are is known one floor above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Damage(pub(super) &'static str);

const CUT_OFF: Damage = Damage("a record reaches out of its block");

/// A block that is read.
#[derive(Clone)]
pub(super) struct Block<'a> {
    bytes: &'a [u8],
    pub(super) prefix: &'a [u8],
    links: &'a [u8],
    keys: &'a [u8],
    /// Where the keys begin.
    keys_at: usize,
    values: Range<usize>,
    len: usize,
    step: usize,
    is_wide: bool,
    /// What records count as if they have no trailers of their own.
    uniform: Option<Trailer>,
}

/// A place between two records, or in front of the first: the index of the record behind it and where its key and value
/// begin.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Place {
    pub(super) index: usize,
    key: usize,
    value: usize,
}

/// A record in its block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// The key behind the block's prefix.
    pub(super) suffix: &'a [u8],
    pub(super) trailer: Trailer,
    /// Where in the block the value is.
    value: (usize, usize),
    /// The place behind it.
    pub(super) next: Place,
}

impl Record<'_> {
    pub(super) fn value(&self) -> Range<usize> {
        self.value.0..self.value.1
    }
}

/// Whether `bytes`, read from `offset`, are what was written there.
pub(super) fn check(bytes: &[u8], identity: u64, offset: u64) -> Result<(), Damage> {
    let Some((sum, covered)) = bytes.split_first_chunk::<CHECKSUM>() else {
        return Err(Damage("a block is cut off"));
    };
    match checksum::matches(u32::from_le_bytes(*sum), checksum::bound(identity, offset, covered)) {
        true => Ok(()),
        false if planted(Bug::IgnoreSortedChecksum) => Ok(()),
        false => Err(Damage("a checksum does not match")),
    }
}

impl<'a> Block<'a> {
    /// The block in `bytes`. Records count as `uniform` if they have no trailers.
    #[inline]
    pub(super) fn parse(bytes: &'a [u8], uniform: Trailer) -> Result<Self, Damage> {
        let malformed = Damage("a block is malformed");
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(Damage("a block is cut off"));
        };
        let long = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
                as usize
        };
        let prefix = usize::from(u16::from_le_bytes([header[20], header[21]]));
        let (len, flags, step) = (long(8), header[22], usize::from(header[23]));
        let values = long(12)..long(16);
        if long(4) != bytes.len()
            || flags > TRAILERS | WIDE
            || values.start > values.end
            || values.end > bytes.len()
        {
            return Err(malformed);
        }
        let is_wide = flags & WIDE != 0;
        let links = match step {
            0 => 0,
            step => (len.saturating_sub(1) / step).saturating_mul(if is_wide { 8 } else { 4 }),
        };
        let (prefix, rest) = rest.split_at_checked(prefix).ok_or(malformed)?;
        let (links, _) = rest.split_at_checked(links).ok_or(malformed)?;
        let keys_at = HEADER + prefix.len() + links.len();
        let keys = bytes.get(keys_at..values.start).ok_or(malformed)?;
        let uniform = (flags & TRAILERS == 0).then_some(uniform);
        Ok(Self { bytes, prefix, links, keys, keys_at, values, len, step, is_wide, uniform })
    }

    /// How many records it has.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether records have trailers of their own.
    pub(super) fn has_trailers(&self) -> bool {
        self.uniform.is_none()
    }

    /// Bytes of the block, as ranges of its records are meant.
    #[inline]
    pub(super) fn bytes(&self, range: Range<usize>) -> &'a [u8] {
        &self.bytes[range]
    }

    /// The place of the first record.
    pub(super) fn start(&self) -> Place {
        Place::default()
    }

    /// Whether there is no record at `place`.
    #[inline]
    pub(super) fn is_end(&self, place: Place) -> bool {
        place.index >= self.len
    }

    /// The record at `place`, which must not be the end.
    #[inline]
    pub(super) fn record(&self, place: Place) -> Result<Record<'a>, Damage> {
        let mut rest = self.keys.get(place.key..).ok_or(CUT_OFF)?;
        let suffix = varint::take(&mut rest).ok_or(CUT_OFF)?;
        let len = varint::take(&mut rest).ok_or(CUT_OFF)?;
        let trailer = match self.uniform {
            Some(trailer) => trailer,
            None => {
                let (bits, behind) = rest.split_first_chunk().ok_or(CUT_OFF)?;
                rest = behind;
                let bits = u64::from_le_bytes(*bits);
                Trailer::from_bits(bits).ok_or(Damage("a record is of an unknown kind"))?
            }
        };
        let suffix = varint::take_bytes(&mut rest, suffix).ok_or(CUT_OFF)?;
        let start = self.values.start + place.value;
        let end = usize::try_from(len).ok().and_then(|len| start.checked_add(len));
        let end = end.filter(|&end| end <= self.values.end).ok_or(CUT_OFF)?;
        let next = Place {
            index: place.index + 1,
            key: self.keys.len() - rest.len(),
            value: end - self.values.start,
        };
        Ok(Record { suffix, trailer, value: (start, end), next })
    }

    /// The [`head`] of a record's suffix: read with what is behind it, which is then cut off.
    #[inline]
    fn head_of(&self, record: &Record<'_>) -> u64 {
        let at = self.keys_at + record.next.key - record.suffix.len();
        let len = record.suffix.len();
        match self.bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk::<8>()) {
            Some(bytes) if (1..8).contains(&len) => {
                let cut = 64 - 8 * len;
                u64::from_be_bytes(*bytes) >> cut << cut
            }
            _ => head(record.suffix),
        }
    }

    /// Where the record of link `link` is: the one with index `link` times the step. Link 0 is the first record.
    #[inline]
    fn linked(&self, link: usize) -> Result<Place, Damage> {
        let Some(at) = link.checked_sub(1) else { return Ok(Place::default()) };
        let damage = Damage("a link leads out of its block");
        let (key, value) = if self.is_wide {
            let bytes = self.links.get(8 * at..).and_then(|links| links.first_chunk::<8>());
            let [a, b, c, d, e, f, g, h] = *bytes.ok_or(damage)?;
            (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]) as usize)
        } else {
            let bytes = self.links.get(4 * at..).and_then(|links| links.first_chunk::<4>());
            let [a, b, c, d] = *bytes.ok_or(damage)?;
            (usize::from(u16::from_le_bytes([a, b])), usize::from(u16::from_le_bytes([c, d])))
        };
        Ok(Place { index: link * self.step, key, value })
    }

    /// How many links lead into the block, the one to its first record included.
    #[inline]
    fn links(&self) -> usize {
        match self.step {
            0 => 1,
            step => self.len.saturating_sub(1) / step + 1,
        }
    }

    /// The place of record `index`; the end if there is no such record. Cost: one link, and up to `step` records.
    pub(super) fn place(&self, index: usize) -> Result<Place, Damage> {
        let index = index.min(self.len);
        let link = match self.step {
            0 => 0,
            step => (index / step).min(self.links() - 1),
        };
        let mut place = self.linked(link)?;
        while place.index < index {
            place = self.record(place)?.next;
        }
        Ok(place)
    }

    /// The place of the first record that is not before `(key, trailer)`. Cost: bisects the links, then reads up to
    /// `step` keys.
    #[inline]
    pub(super) fn lower_bound(&self, key: &[u8], trailer: Trailer) -> Result<Place, Damage> {
        let Some(suffix) = key.strip_prefix(self.prefix) else {
            return match key < self.prefix {
                true => Ok(Place::default()),
                false => self.place(self.len),
            };
        };
        let head = head(suffix);
        let is_before = |record: &Record<'_>| match self.head_of(record).cmp(&head) {
            Ordering::Equal => {
                compare((record.suffix, record.trailer), (suffix, trailer)) == Ordering::Less
            }
            order => order == Ordering::Less,
        };
        // The record of link `from` is before the key, or is the first one; that of link `to` is not.
        let (mut from, mut to) = (0, self.links());
        while to - from > 1 {
            let middle = from.midpoint(to);
            match is_before(&self.record(self.linked(middle)?)?) {
                true => from = middle,
                false => to = middle,
            }
        }
        let mut place = self.linked(from)?;
        while !self.is_end(place) {
            let record = self.record(place)?;
            if !is_before(&record) {
                break;
            }
            place = record.next;
        }
        Ok(place)
    }

    /// The first key and what it counts as.
    pub(super) fn first(&self) -> Result<(Vec<u8>, Trailer), Damage> {
        if self.len == 0 {
            return Err(Damage("a block has no records"));
        }
        let first = self.record(Place::default())?;
        Ok(([self.prefix, first.suffix].concat(), first.trailer))
    }

    /// An error unless links lead to their records, and keys and values fill the block.
    pub(super) fn check_whole(&self) -> Result<(), Damage> {
        let mut place = Place::default();
        while !self.is_end(place) {
            if self.step > 0
                && place.index.is_multiple_of(self.step)
                && self.linked(place.index / self.step)? != place
            {
                return Err(Damage("a link leads to another record"));
            }
            place = self.record(place)?.next;
        }
        let padding = &self.bytes[self.values.end..];
        let is_full = place.key == self.keys.len() && place.value == self.values.len();
        match is_full && padding.iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => Err(Damage("a block has bytes that belong to no record")),
        }
    }
}

/// A block that grows.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    step: u32,
    has_trailers: bool,
    /// All keys, one behind the other.
    keys: Vec<u8>,
    records: Vec<Pushed>,
    values: Vec<u8>,
    /// Bytes of lengths and trailers.
    heads: usize,
}

#[derive(Clone, Copy, Debug)]
struct Pushed {
    key_end: usize,
    value_len: usize,
    trailer: Trailer,
}

impl BlockBuilder {
    /// A block in which every `step`-th record has a link; none if that is 0.
    pub(super) fn new(step: u32, has_trailers: bool) -> Self {
        let (keys, records, values) = (Vec::new(), Vec::new(), Vec::new());
        Self { step, has_trailers, keys, records, values, heads: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// At most so many bytes the block takes with a record of `key` and so long a value, unless these are more than
    /// 64 KiB: then links may be wide.
    #[inline]
    pub(super) fn len_with(&self, key: &[u8], value_len: usize) -> usize {
        let record = self.record_len(key, value_len);
        let links = match self.step as usize {
            0 => 0,
            step => self.len() / step * 4,
        };
        let shared = self.shared(key);
        let saved = shared * self.len();
        HEADER + links + self.keys.len() + self.values.len() + self.heads + record - saved
    }

    /// Bytes of a record.
    #[inline]
    fn record_len(&self, key: &[u8], value_len: usize) -> usize {
        self.head_len(key.len(), value_len) + key.len() + value_len
    }

    #[inline]
    fn head_len(&self, key_len: usize, value_len: usize) -> usize {
        let trailer = if self.has_trailers { 8 } else { 0 };
        varint::len(key_len as u64) + varint::len(value_len as u64) + trailer
    }

    /// How many bytes all keys share with `last`, the last one.
    #[inline]
    fn shared(&self, last: &[u8]) -> usize {
        let Some(first) = self.records.first() else { return 0 };
        common_prefix_len(&self.keys[..first.key_end], last).min(usize::from(u16::MAX))
    }

    /// Adds a record, which must come behind those that are there.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        self.heads += self.head_len(key.len(), value.len());
        self.records.push(Pushed { key_end: self.keys.len(), value_len: value.len(), trailer });
    }

    /// Makes all keys empty, with one trailer.
    pub(super) fn forget_keys(&mut self, trailer: Trailer) {
        self.keys.clear();
        for record in &mut self.records {
            (record.key_end, record.trailer) = (0, trailer);
        }
        self.heads = self.records.iter().map(|record| self.head_len(0, record.value_len)).sum();
    }

    /// How many bytes all keys have.
    pub(super) fn key_bytes(&self) -> usize {
        self.keys.len()
    }

    /// Puts the block into `out`, in place of what was there, for a file at `offset`, with zeros up to `len` bytes if
    /// those are at most `padding`; and is empty again.
    ///
    /// It is shorter than 4 GiB: a block takes more than the bytes it is meant to have only for one record.
    pub(super) fn finish(
        &mut self,
        identity: u64,
        offset: u64,
        len: usize,
        padding: usize,
        out: &mut Vec<u8>,
    ) {
        let last_start = self.records.len().checked_sub(2).map_or(0, |i| self.records[i].key_end);
        let shared = self.shared(&self.keys[last_start..]);
        let step = self.step as usize;
        let links = match step {
            0 => 0,
            step => self.len().saturating_sub(1) / step,
        };
        let most = self.keys.len() + self.heads - shared * self.len();
        let is_wide = most.max(self.values.len()) > usize::from(u16::MAX);
        let width = if is_wide { 4 } else { 2 };
        out.clear();
        out.extend_from_slice(&[0; HEADER]);
        out.extend_from_slice(&self.keys[..shared]);
        let links_at = out.len();
        out.resize(links_at + 2 * width * links, 0);
        let keys_at = out.len();
        let (mut key_start, mut value_start) = (0, 0);
        for (index, record) in self.records.iter().enumerate() {
            if step > 0 && index > 0 && index.is_multiple_of(step) {
                let at = links_at + (index / step - 1) * 2 * width;
                let (key, value) = (((out.len() - keys_at) as u32), value_start as u32);
                out[at..at + width].copy_from_slice(&key.to_le_bytes()[..width]);
                out[at + width..at + 2 * width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            let suffix = &self.keys[key_start + shared..record.key_end];
            varint::put(out, suffix.len() as u64);
            varint::put(out, record.value_len as u64);
            if self.has_trailers {
                out.extend_from_slice(&record.trailer.bits().to_le_bytes());
            }
            out.extend_from_slice(suffix);
            key_start = record.key_end;
            value_start += record.value_len;
        }
        let values = out.len() as u32;
        out.extend_from_slice(&self.values);
        let end = out.len() as u32;
        if len > out.len() && len - out.len() <= padding {
            out.resize(len, 0);
        }
        let flags = (u8::from(self.has_trailers) * TRAILERS) | (u8::from(is_wide) * WIDE);
        let total = out.len() as u32;
        out[4..8].copy_from_slice(&total.to_le_bytes());
        out[8..12].copy_from_slice(&(self.records.len() as u32).to_le_bytes());
        (out[22], out[23]) = (flags, self.step as u8);
        out[12..16].copy_from_slice(&values.to_le_bytes());
        out[16..20].copy_from_slice(&end.to_le_bytes());
        out[20..22].copy_from_slice(&(shared as u16).to_le_bytes());
        let sum = checksum::bound(identity, offset, &out[CHECKSUM..]);
        out[..CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        self.keys.clear();
        self.records.clear();
        self.values.clear();
        self.heads = 0;
    }
}
