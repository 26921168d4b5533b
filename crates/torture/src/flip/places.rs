//! What depends on the bytes of a file. Nothing may depend on a byte only in the log, which is made before it is written, and in
//! the files of B+ trees, which have free pages and are longer than what is in use.

use std::ops::Range;

use super::examine::Records;
use super::{PAGE, SECTOR};

/// Bytes of a segment's header.
const SEGMENT_HEADER: usize = 64;
/// The first sector of a segment, which is written when it is made.
const SEGMENT_FRONT: usize = 512;
/// The most bytes that a mark takes at the end of the log.
const MARK: usize = 54;
/// Where catalog and manifests say how far they are synced.
const WATERMARK: Range<usize> = 64..96;
/// What a meta page of a B+ tree says,
const META: Range<usize> = 0..124;
/// and where it confirms the other one.
const CONFIRMATION: Range<usize> = 512..524;
/// What stands in front of a large value, and of the list of free pages.
const RUN_HEADER: usize = 16;

/// What depends on a byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Meaning {
    /// Nothing, and nobody looks at it: damage does no harm.
    Unused,
    /// Nothing, but it may be looked at: damage may be told of.
    Hint,
    /// Something: damage is told of.
    Needed,
}

/// What depends on each byte of a file.
#[derive(Clone, Default, Debug)]
pub struct Places {
    hints: Vec<Range<usize>>,
    unused: Vec<Range<usize>>,
    /// Of that, where what belongs to another place of the file is found when it is looked for what was lost.
    searched: Vec<Range<usize>>,
    /// What says nothing if it is zeros.
    optional: Vec<Range<usize>>,
    /// What says less and nothing false if it is as it was before.
    older: Vec<Range<usize>>,
    /// Where the file may be cut off.
    end: Option<usize>,
    /// What is taken for a write that the power failed in if it is damaged, and so for one that nothing was promised of,
    torn: Vec<Range<usize>>,
    /// and what is if a whole sector is lost with it.
    torn_with_sector: Vec<Range<usize>>,
}

/// How many bytes at the front of a file are in use: the others are zeros.
pub(super) fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// The last part of a file's name.
pub(super) fn last_part(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

/// Whether it is what repeats the newest bytes of the log: if nothing is missing, nothing is lost with it.
pub(super) fn is_tail(name: &str) -> bool {
    last_part(name) == "tail.log"
}

/// Whether it is a segment of the log.
pub(super) fn is_segment(name: &str) -> bool {
    last_part(name).ends_with(".log") && !is_tail(name)
}

/// Whether it is a catalog or a manifest.
fn is_edit_log(name: &str) -> bool {
    ["catalog-", "manifest-"].iter().any(|kind| last_part(name).starts_with(kind))
}

/// Whether it is a segment of the log that no record has been written to, if so many of its bytes are in use.
pub(super) fn is_prepared_segment(name: &str, used: usize) -> bool {
    is_segment(name) && (1..=SEGMENT_HEADER).contains(&used)
}

impl Places {
    /// Those of the file with this name and these bytes, of a keyspace with these records if it is one of a keyspace.
    #[must_use]
    pub fn of(name: &str, bytes: &[u8], records: Option<&Records>) -> Self {
        match records {
            _ if is_tail(name) => Self::of_tail(bytes),
            _ if is_segment(name) => Self::of_segment(bytes, used(bytes)),
            Some(records) if last_part(name) == "tree" => Self::of_tree(bytes, records),
            _ if is_edit_log(name) => Self { older: vec![WATERMARK], ..Self::default() },
            _ => Self::default(),
        }
    }

    /// What repeats the newest bytes of the log may be damaged, or missing, where the segments have them too.
    fn of_tail(bytes: &[u8]) -> Self {
        let all = 0..bytes.len();
        Self { hints: vec![all], ..Self::default() }
    }

    /// Those of a file of the log, of which so many bytes were in use when it was synced last: what came then may be lost.
    pub(super) fn of_unsynced(name: &str, bytes: &[u8], synced: usize) -> Self {
        if is_tail(name) { Self::of_tail(bytes) } else { Self::of_segment(bytes, synced) }
    }

    /// The last mark of a segment says no more than that all before it is there; but if it is lost together with that, nothing says so. A
    /// segment that was only prepared says nothing. So many bytes of it are synced.
    fn of_segment(bytes: &[u8], synced: usize) -> Self {
        let (used, len) = (used(bytes), bytes.len());
        let is_prepared = synced <= SEGMENT_HEADER;
        let hint = match is_prepared {
            true => 0..(used + MARK).max(SEGMENT_FRONT).min(len),
            // It may end with zeros.
            false => synced.saturating_sub(MARK)..(used + MARK).min(len),
        };
        let rest = hint.end..len;
        let torn_with_sector = if is_prepared { Vec::new() } else { vec![hint.clone()] };
        Self {
            hints: vec![hint],
            unused: vec![rest.clone()],
            searched: vec![rest],
            torn_with_sector,
            ..Self::default()
        }
    }

    /// Nothing depends on what a B+ tree has in free pages and behind all pages, behind what meta pages and large values
    /// say, and in the older meta page.
    #[must_use]
    pub fn of_tree(tree: &[u8], records: &Records) -> Self {
        let meta = newest_meta(tree);
        let older = if meta == 0 { PAGE } else { 0 };
        let in_page = |range: Range<usize>, page| page + range.start..page + range.end;
        let gaps = [META.end..CONFIRMATION.start, CONFIRMATION.end..PAGE];
        let mut unused: Vec<_> = gaps
            .into_iter()
            .flat_map(|gap| [0, PAGE].map(|page| in_page(gap.clone(), page)))
            .collect();
        unused.extend(free_pages(tree, meta));
        unused.extend(ends_of_large_values(tree, records));
        unused.push(tree_end(tree)..tree.len());
        // Only a meta page that is confirmed in the other one is known to have been written.
        let is_confirmed = number(tree, older + CONFIRMATION.start) == generation(tree, meta);
        let torn = if is_confirmed { Vec::new() } else { vec![in_page(META, meta)] };
        Self {
            hints: vec![in_page(META, older)],
            unused,
            // A confirmation that is missing is one that was never written.
            optional: [0, PAGE].map(|page| in_page(CONFIRMATION, page)).into(),
            end: Some(tree_end(tree)),
            torn: torn.clone(),
            torn_with_sector: torn,
            ..Self::default()
        }
    }

    /// What depends on the byte at `at`.
    #[must_use]
    pub fn meaning(&self, at: usize) -> Meaning {
        match () {
            () if has(&self.unused, at) => Meaning::Unused,
            () if has(&self.hints, at) => Meaning::Hint,
            () => Meaning::Needed,
        }
    }

    /// The same if all of its sector becomes zeros.
    pub(super) fn meaning_if_zeros(&self, at: usize) -> Meaning {
        if has(&self.optional, at) { Meaning::Hint } else { self.meaning(at) }
    }

    /// The same if it becomes `byte`, which with those around it belongs to another place of the file.
    pub(super) fn meaning_if_misplaced(&self, at: usize, byte: u8) -> Meaning {
        match byte {
            _ if has(&self.searched, at) => Meaning::Hint,
            0 => self.meaning_if_zeros(at),
            _ => self.meaning(at),
        }
    }

    /// The same if it becomes what it was before, which may be that nothing had been written there.
    pub(super) fn meaning_if_older(&self, at: usize) -> Meaning {
        if has(&self.older, at) { Meaning::Hint } else { self.meaning_if_zeros(at) }
    }

    /// Whether damage to the byte at `at` can be told from what a power cut leaves.
    pub(super) fn can_be_told(&self, at: usize) -> bool {
        !has(&self.torn, at)
    }

    /// Whether that goes for the sector at `offset`.
    pub(super) fn can_sector_be_told(&self, offset: usize) -> bool {
        let sector = offset..offset + SECTOR;
        let overlaps = |torn: &Range<usize>| torn.start < sector.end && sector.start < torn.end;
        !self.torn_with_sector.iter().any(overlaps)
    }

    /// Whether it goes for all sectors of a range that begins with one.
    pub(super) fn can_sectors_be_told(&self, range: Range<usize>) -> bool {
        range.step_by(SECTOR).all(|sector| self.can_sector_be_told(sector))
    }

    /// Whether nothing depends on what is behind `len`, nor on its being there.
    pub(super) fn is_behind_all(&self, len: usize) -> bool {
        self.end.is_some_and(|end| len >= end)
    }
}

fn has(ranges: &[Range<usize>], at: usize) -> bool {
    ranges.iter().any(|range| range.contains(&at))
}

fn number(bytes: &[u8], at: usize) -> usize {
    let number = bytes[at..at + 8].try_into().expect("it has 8 bytes");
    u64::from_le_bytes(number) as usize
}

/// Where the meta page that counts begins.
fn newest_meta(tree: &[u8]) -> usize {
    if generation(tree, 0) > generation(tree, PAGE) { 0 } else { PAGE }
}

/// The generation of the meta page that begins at `meta`.
fn generation(tree: &[u8], meta: usize) -> usize {
    number(tree, meta + 24)
}

/// Where the pages of a tree end.
#[must_use]
pub fn tree_end(tree: &[u8]) -> usize {
    number(tree, newest_meta(tree) + 64) * PAGE
}

/// The pages that are free, and what is behind the list of them.
fn free_pages(tree: &[u8], meta: usize) -> Vec<Range<usize>> {
    let (first, len) = (number(tree, meta + 72) * PAGE, number(tree, meta + 80));
    if len == 0 {
        return Vec::new();
    }
    let list = first + RUN_HEADER..first + RUN_HEADER + len;
    let (mut free, mut at) = (vec![to_page_end(list.end)], 0);
    for run in varints(&tree[list]).chunks_exact(2) {
        let first = at + run[0];
        at = first + run[1] + 1;
        free.push(first * PAGE..at * PAGE);
    }
    free
}

/// What is behind the values that have pages of their own.
fn ends_of_large_values(tree: &[u8], records: &Records) -> Vec<Range<usize>> {
    let large = records.values().flatten().filter(|value| value.len() > PAGE / 4);
    let ends = large.filter_map(|value| {
        let found = tree.windows(value.len()).position(|found| found == value)?;
        Some(to_page_end(found + value.len()))
    });
    ends.collect()
}

fn to_page_end(from: usize) -> Range<usize> {
    from..from.next_multiple_of(PAGE)
}

/// All numbers of a list of varints.
fn varints(bytes: &[u8]) -> Vec<usize> {
    let (mut numbers, mut number, mut shift) = (Vec::new(), 0, 0);
    for byte in bytes {
        number |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_segment_does_not_use_does_no_harm() {
        let mut segment = vec![0; 4096];
        segment[..1000].fill(7);
        let places = Places::of("log/000001.log", &segment, None);
        let meanings = [0, 945, 946, 1053, 1054, 4095].map(|at| places.meaning(at));
        use Meaning::{Hint, Needed, Unused};
        assert_eq!(meanings, [Needed, Needed, Hint, Hint, Unused, Unused]);
        assert!(!is_prepared_segment("log/000001.log", used(&segment)));
        assert_eq!(
            [0, 512, 1024, 1536].map(|at| places.can_sector_be_told(at)),
            [true, false, false, true]
        );
        // Records that belong elsewhere may be told of as what a power cut has left.
        let misplaced = [0, 1053, 1054].map(|at| places.meaning_if_misplaced(at, 7));
        assert_eq!(misplaced, [Needed, Hint, Hint]);
        // What was not synced may be lost.
        let places = Places::of_unsynced("log/000001.log", &segment, 800);
        assert_eq!([745, 746, 1000].map(|at| places.meaning(at)), [Needed, Hint, Hint]);
        segment[SEGMENT_HEADER..].fill(0);
        assert!(is_prepared_segment("log/000001.log", used(&segment)));
        assert!(!is_prepared_segment("log/tail.log", used(&segment)));
        let places = Places::of("log/000001.log", &segment, None);
        assert_eq!([0, 511, 512].map(|at| places.meaning(at)), [Hint, Hint, Unused]);
        let table = Places::of("keyspaces/1/000001.table", &segment, Some(&Records::new()));
        assert!((0..4096).all(|at| table.meaning(at) == Needed));
        let manifest = Places::of("keyspaces/1/manifest-000001", &segment, Some(&Records::new()));
        assert!((0..4096).all(|at| manifest.meaning(at) == Needed));
        assert_eq!(
            [63, 64, 95, 96].map(|at| manifest.meaning_if_older(at)),
            [Needed, Hint, Hint, Needed]
        );
    }

    #[test]
    fn varints_are_read_up_to_the_last() {
        assert_eq!(varints(&[1, 0x80, 1, 0xff, 0x7f, 0]), [1, 128, 16383, 0]);
    }
}
