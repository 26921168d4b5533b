//! Which cases there are, and in what order they come. They are far too many for a list, so each is made when its turn comes.

use std::ops::Range;

use super::case::{Block, Damage, Filling};
use super::sample::{Sample, Sampled};
use super::{Case, PAGE, SECTOR};
use crate::{choices, dice};

/// So many bytes at each end of what is in use in a file have heads, footers and the newest records.
const END: usize = 1024;
/// Bits there are so many times as likely to be chosen as others,
const DENSE: u64 = 32;
/// and those that are not in use so many times less likely.
const SPARSE: u64 = 64;
/// Away from the ends a file is cut off at one length for so many bits, but if all of them are flipped.
const LENGTHS: u64 = 8;
/// All sectors in use are damaged unless so many bits or more are passed over.
const SECTORS: u64 = 256;
/// In sectors that another sample has too, in the same place with the same bytes, all is so many times less likely to be chosen.
const SHARED: u64 = 16;
/// From so many places what is at another one may come, if all is tried.
const ORIGINS: u64 = 4;

/// A kind of damage of which there are many cases in a file, by a number.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Bit,
    Byte,
    Cut,
    Sector(Filling),
    /// What comes from another sector, of so many that are in use.
    Misplaced(u64),
}

/// Cases of one kind in one file, with the numbers of a range. Of each `every` that follow each other one is chosen.
#[derive(Debug)]
struct Stratum {
    sample: usize,
    file: usize,
    kind: Kind,
    numbers: Range<u64>,
    every: u64,
}

impl Stratum {
    fn len(&self) -> u64 {
        (self.numbers.end - self.numbers.start).div_ceil(self.every)
    }

    /// The `n`-th case.
    fn nth(&self, seed: u64, n: u64) -> Damage {
        let first = self.numbers.start + n * self.every;
        let choices = self.every.min(self.numbers.end - first);
        let choice = choices::mix(seed, (self.sample, self.file, first)) % choices;
        let number = first + choice;
        match self.kind {
            Kind::Bit => Damage::Bit(number),
            Kind::Byte => Damage::Byte(number),
            Kind::Cut => Damage::Cut(number),
            Kind::Sector(filling) => Damage::Sector(number * SECTOR as u64, filling),
            Kind::Misplaced(used) => {
                let choice = choices::mix(seed, (self.sample, self.file, "origin", number));
                misplaced(Block::Sector, number / ORIGINS, choice, used)
            }
        }
    }
}

/// A block that has the bytes of another one, by a `choice` of those that are in `used`, of which there are several.
fn misplaced(block: Block, to: u64, choice: u64, used: u64) -> Damage {
    let from = choice % (used - 1);
    // It is not the same one.
    let from = from + u64::from(from >= to);
    let len = block.len() as u64;
    Damage::Misplaced { block, from: from * len, to: to * len }
}

/// The cases of some samples: first those of files as a whole and of older pages, then all others, in another order than that of files.
pub(super) struct Plan<'a> {
    seed: u64,
    samples: &'a [Sample],
    whole: Vec<Case<'a>>,
    strata: Vec<Stratum>,
    /// Behind how many cases each stratum ends.
    ends: Vec<u64>,
}

impl<'a> Plan<'a> {
    /// Has one bit in `every`, and of other damage as much less as it has more effect. Of sectors that several samples have alike that is so in
    /// the first one.
    pub(super) fn new(seed: u64, samples: &'a [Sample], every: u64) -> Self {
        let (mut strata, mut whole) = (Vec::new(), Vec::new());
        for (number, sample) in samples.iter().enumerate() {
            for file in (0..sample.files.len()).filter(|&file| sample.is_damaged(file)) {
                let of_file = strata_of(sample, file, &samples[..number], every.max(1));
                strata.extend(of_file.into_iter().map(|(kind, numbers, every)| Stratum {
                    sample: number,
                    file,
                    kind,
                    numbers,
                    every,
                }));
                whole.extend(cases_of_whole(sample, file));
                whole.extend(misplaced_pages(seed, sample, file, every));
            }
        }
        let ends = strata.iter().scan(0, |end, stratum| {
            *end += stratum.len();
            Some(*end)
        });
        let ends = ends.collect();
        Self { seed, samples, whole, strata, ends }
    }

    /// All cases. Those that come one after the other are far from each other, and soon there are some everywhere.
    pub(super) fn cases(&self) -> impl Iterator<Item = Case<'a>> + Send {
        let len = self.ends.last().copied().unwrap_or(0);
        let others = dice::shuffled(len as usize, self.seed).map(|n| self.in_stratum(n as u64));
        self.whole.iter().cloned().chain(others)
    }

    /// The `n`-th case of all strata.
    fn in_stratum(&self, n: u64) -> Case<'a> {
        let found = self.ends.partition_point(|&end| end <= n);
        let stratum = &self.strata[found];
        let damage = stratum.nth(self.seed, n + stratum.len() - self.ends[found]);
        Case { sample: &self.samples[stratum.sample], file: stratum.file, damage }
    }
}

/// The strata of a file: kinds, ranges of numbers, and of how many one is chosen. What it has in common with samples `before` has fewer cases.
fn strata_of(
    sample: &Sample,
    file: usize,
    before: &[Sample],
    every: u64,
) -> Vec<(Kind, Range<u64>, u64)> {
    let file = &sample.files[file];
    let is_shared = |sector: u64| before.iter().any(|other| shares(other, file, sector as usize));
    let mut strata = Vec::new();
    for (bytes, part) in parts(file) {
        for (bytes, is_shared) in runs(bytes, SECTOR as u64, is_shared) {
            let every = every * if is_shared { SHARED } else { 1 };
            let (flips, lengths) = match part {
                Part::End => (every.div_ceil(DENSE), every.div_ceil(2 * DENSE)),
                Part::Middle if every == 1 => (1, 1),
                Part::Middle => (every, every * LENGTHS),
                Part::Unused => (every * SPARSE, every * SPARSE * LENGTHS),
            };
            strata.push((Kind::Bit, bytes.start * 8..bytes.end * 8, flips));
            strata.push((Kind::Byte, bytes.clone(), flips));
            strata.push((Kind::Cut, bytes, lengths));
        }
    }
    let sectors = |len: usize| len.div_ceil(SECTOR) as u64;
    let (used, all) = (sectors(file.used), sectors(file.bytes.len()));
    for (numbers, sparse) in [(0..used, 1), (used..all, SPARSE)] {
        for (numbers, is_shared) in runs(numbers, 1, is_shared) {
            let every = every * if is_shared { SHARED } else { 1 };
            let misplaced = every.clamp(1, ORIGINS) * every.div_ceil(SECTORS) * sparse;
            let every = every.div_ceil(SECTORS) * sparse;
            let fillings = Filling::ALL.map(Kind::Sector);
            strata.extend(fillings.map(|kind| (kind, numbers.clone(), every)));
            if used > 1 {
                let numbers = numbers.start * ORIGINS..numbers.end * ORIGINS;
                strata.push((Kind::Misplaced(used), numbers, misplaced));
            }
        }
    }
    strata
}

/// Whether a sample has a file of the same name with the same bytes in this sector.
fn shares(other: &Sample, file: &Sampled, sector: usize) -> bool {
    let bytes = sector * SECTOR..((sector + 1) * SECTOR).min(file.bytes.len());
    other.find(&file.name).is_some_and(|found| {
        other.files[found].bytes.get(bytes.clone()) == Some(&file.bytes[bytes])
    })
}

/// The parts of a range, and of each whether sectors in it are shared. There are so many of its numbers in a sector.
fn runs(
    range: Range<u64>,
    in_sector: u64,
    is_shared: impl Fn(u64) -> bool,
) -> Vec<(Range<u64>, bool)> {
    let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let sector = start / in_sector;
        let (end, is_shared) = (((sector + 1) * in_sector).min(range.end), is_shared(sector));
        match runs.last_mut() {
            Some((run, alike)) if *alike == is_shared => run.end = end,
            _ => runs.push((start..end, is_shared)),
        }
        start = end;
    }
    runs
}

/// What a part of a file has.
#[derive(Clone, Copy)]
enum Part {
    End,
    Middle,
    Unused,
}

/// The parts of a file, from the front to its end.
fn parts(file: &Sampled) -> [(Range<u64>, Part); 4] {
    let (used, len) = (file.used, file.bytes.len());
    let front = END.min(used);
    let back = used.saturating_sub(END).max(front);
    let range = |from: usize, to: usize| from as u64..to as u64;
    [
        (range(0, front), Part::End),
        (range(front, back), Part::Middle),
        (range(back, used), Part::End),
        (range(used, len), Part::Unused),
    ]
}

/// The cases of a file as a whole, and of pages as they were: few of them are there.
fn cases_of_whole(sample: &Sample, file: usize) -> Vec<Case<'_>> {
    let sampled = &sample.files[file];
    let case = |damage| Case { sample, file, damage };
    let others = sample.files[file + 1..].iter().filter(|other| other.kind() == sampled.kind());
    let swapped = others.map(|other| case(Damage::Swapped(other.name.clone())));
    let foreign = sampled.foreign.as_ref().map(|_| case(Damage::Foreign));
    let offsets = (0..sampled.earlier.len()).step_by(PAGE);
    let stale = offsets.map(|at| case(Damage::Stale(at as u64))).filter(Case::exists);
    [case(Damage::Missing)].into_iter().chain(swapped).chain(foreign).chain(stale).collect()
}

/// The cases of pages in use that have what belongs to another one: one origin for each, or several if all is tried.
fn misplaced_pages(seed: u64, sample: &Sample, file: usize, every: u64) -> Vec<Case<'_>> {
    let used = sample.files[file].used.div_ceil(PAGE) as u64;
    let origins = if every == 1 { ORIGINS } else { 1 };
    let numbers = (0..used).filter(|_| used > 1).flat_map(|to| (0..origins).map(move |n| (to, n)));
    let cases = numbers.map(|(to, number)| {
        let choice = choices::mix(seed, (sample.state.to_string(), file, "page", to, number));
        Case { sample, file, damage: misplaced(Block::Page, to, choice, used) }
    });
    cases.filter(Case::exists).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use turbidite::{EngineKind, Layer};

    use super::super::State;
    use super::*;
    use crate::is_small;
    use crate::setting::{Engines, Setting};

    /// Not one in which little is much: files of edits are followed by others there before a page of them is written a second time.
    fn sample(state: State) -> Sample {
        let engines = Engines::Only(EngineKind::Skip);
        let seed = (3..).find(|&seed| !is_small(seed)).expect("half of all are not");
        Sample::new(Setting { engines, ..Setting::new(seed, Layer::Mmap) }, state)
    }

    fn samples() -> Vec<Sample> {
        vec![sample(State::Closed)]
    }

    #[test]
    fn with_all_effort_every_bit_in_use_is_flipped_once() {
        let samples = State::ALL.map(sample);
        let flips_of = |file: &Sampled| vec![0_u8; file.bytes.len() * 8];
        let mut flips =
            samples.each_ref().map(|sample| sample.files.iter().map(flips_of).collect::<Vec<_>>());
        for case in Plan::new(3, &samples, 1).cases() {
            if let Damage::Bit(bit) = case.damage {
                let sample = State::ALL.iter().position(|&state| state == case.sample.state);
                let sample = sample.unwrap();
                flips[sample][case.file][bit as usize] += 1;
            }
        }
        let chosen = |bits: &[u8]| bits.iter().map(|&times| usize::from(times)).sum::<usize>();
        for (flips, file) in flips[0].iter().zip(&samples[0].files) {
            let (used, unused) = flips.split_at(file.used * 8);
            assert!(used.iter().all(|&times| times == 1), "{}", file.name);
            assert_eq!(chosen(unused), unused.len().div_ceil(64), "{}", file.name);
        }
        // Of the second one what is not in the first: the tail of the log above all.
        let (mut shared, mut own) = (0, 0);
        for (flips, file) in flips[1].iter().zip(&samples[1].files) {
            let mut shared_here = [0, 0];
            for (sector, flips) in flips[..file.used * 8].chunks(8 * SECTOR).enumerate() {
                let (at, back) = (sector * SECTOR, file.used.saturating_sub(END));
                assert!(flips.iter().all(|&times| times <= 1), "{}", file.name);
                if at < END || at >= back || !shares(&samples[0], file, sector) {
                    assert!(flips.iter().all(|&times| times == 1), "{}, {sector}", file.name);
                    own += 1;
                } else if at + SECTOR <= back {
                    shared_here[0] += flips.len();
                    shared_here[1] += chosen(flips);
                    shared += 1;
                }
            }
            let [all, chosen] = shared_here;
            assert!((all / 16..all / 8 + 100).contains(&chosen), "{}: {shared_here:?}", file.name);
        }
        assert!(own > 100, "{own}");
        // Only what is made of a seed alone is the same twice.
        assert!(shared > if cfg!(feature = "simulation") { 200 } else { 50 }, "{shared}");
    }

    #[test]
    fn a_short_run_comes_to_every_file_and_to_every_kind_of_damage() {
        let samples = samples();
        let plan = Plan::new(3, &samples, 40);
        let mut met = BTreeMap::<_, u64>::new();
        for case in plan.cases().take(3000) {
            *met.entry(samples[0].files[case.file].name.clone()).or_default() += 1;
            let kind = match case.damage {
                Damage::Misplaced { block, .. } => format!("misplaced {block}"),
                damage => damage.kind().to_owned(),
            };
            *met.entry(kind).or_default() += 1;
        }
        let kinds = ["bit", "byte", "cut", "missing", "sector", "stale", "swapped", "foreign"];
        let kinds = kinds.into_iter().chain(["misplaced page", "misplaced sector"]);
        let names = samples[0].files.iter().map(|file| &file.name[..]);
        for wanted in names.chain(kinds) {
            assert!(met.contains_key(wanted), "no {wanted} in {met:?}");
        }
    }

    #[test]
    fn another_seed_chooses_other_bits() {
        let samples = samples();
        let [one, two] = [1, 2].map(|seed| {
            let plan = Plan::new(seed, &samples, 100);
            let bits = plan.cases().map(|case| case.id().to_string());
            bits.filter(|name| name.contains("bit:")).collect::<std::collections::BTreeSet<_>>()
        });
        // At both ends of a file it is one bit in four.
        assert!(one.len() > 1000 && one.intersection(&two).count() * 2 < one.len());
    }
}
