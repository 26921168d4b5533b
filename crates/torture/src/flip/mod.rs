//! Damage to every bit of every file of a small database: an error or the right answer, never a wrong one, a panic or a hang.
//!
//! The database has been closed, or its files are as they were while it was open, with all that was acknowledged synced or not. Bits and bytes are flipped, files are cut off, removed, swapped with each
//! other and with those of another database, sectors of them hold zeros or garbage, pages what they held earlier, and both what belongs to another place of
//! the file. Then the database is opened and read in every way. It may refuse to open, and leaves everything as it is then; or reads may fail; but each answer is
//! right, and [`verify`](turbidite::Database::verify) tells of all damage but where nothing depends on what was damaged. There it does
//! no harm at all. That goes for what is left when it was written to, compacted, closed and opened again, too.

mod case;
mod examine;
mod onward;
mod plan;
mod sample;

pub mod places;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use turbidite::vfs::{Access, Fs, MemoryFs};
use turbidite::{Error, ErrorKind, Layer};

pub use self::case::{Block, CaseId, Damage, Filling, State};
pub use self::examine::{Contents, Opening, Records, Verdict, examine};
use self::examine::{Examined, Told, examine_any};
use self::places::Meaning;
use self::plan::Plan;
use self::sample::{Sample, Sampled};
use crate::report::{Report, Violation};
use crate::setting::{Setting, Unknown};
use crate::watch::watched;
use crate::{Dice, choices, history, panics, workers};

/// Bytes of what a disk writes whole or not at all.
const SECTOR: usize = 512;
/// Bytes of what a disk may forget to have written.
const PAGE: usize = 4096;

/// Of the damaged bytes that are met by a writer, and of lengths at which a file is cut off, one in so many is gone on with,
const GONE_ON: u64 = 8;
/// and of the bits one in so many.
const GONE_ON_BITS: u64 = 16;

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// One bit in so many is flipped, which is not 0; the seed says which. At both ends of each file it is 32 times as many, and in the zeros
    /// behind what is in use one 64th; with 1, all bits in use are. Other damage becomes more and less with it, but for that
    /// of files as a whole.
    pub every: usize,
}

/// A file of a sample, and what is done to it.
#[derive(Clone)]
struct Case<'a> {
    sample: &'a Sample,
    file: usize,
    damage: Damage,
}

impl fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id())
    }
}

impl Case<'_> {
    fn id(&self) -> CaseId {
        let &Sample { setting, state, .. } = self.sample;
        CaseId { setting, state, file: self.file().name.clone(), damage: self.damage.clone() }
    }

    fn file(&self) -> &Sampled {
        &self.sample.files[self.file]
    }

    /// Whether there is such a case: the file has what is to be damaged, and the damage can be told from what a power cut leaves.
    fn exists(&self) -> bool {
        let file = self.file();
        let in_file = |at: u64| at < file.bytes.len() as u64;
        let is_told = |at: u64| in_file(at) && file.places.can_be_told(at as usize);
        match &self.damage {
            Damage::Bit(bit) => is_told(bit / 8),
            Damage::Byte(at) => is_told(*at),
            Damage::Cut(len) => in_file(*len),
            Damage::Missing => true,
            Damage::Sector(offset, _) => {
                offset.is_multiple_of(SECTOR as u64)
                    && in_file(*offset)
                    && file.places.can_sector_be_told(*offset as usize)
            }
            Damage::Stale(offset) => {
                offset.is_multiple_of(PAGE as u64)
                    && in_file(*offset)
                    && self.stale(*offset as usize).any(|(at, byte)| byte != file.bytes[at])
                    && file.places.can_sectors_be_told(*offset as usize..*offset as usize + PAGE)
            }
            &Damage::Misplaced { block, from, to } => {
                let len = block.len() as u64;
                let is_block = |at: u64| at.is_multiple_of(len) && in_file(at);
                is_block(from)
                    && is_block(to)
                    && self.changed_by(to, self.misplaced(block, from, to)).next().is_some()
                    && file.places.can_sectors_be_told(to as usize..to as usize + block.len())
            }
            Damage::Swapped(other) => self.other(other).is_some(),
            Damage::Foreign => file.foreign.is_some(),
        }
    }

    /// The file of this name, if it is another one of the same kind.
    fn other(&self, name: &str) -> Option<&Sampled> {
        let other = &self.sample.files[self.sample.find(name)?];
        (other.name != self.file().name && other.kind() == self.file().kind()).then_some(other)
    }

    /// The sample with the damage.
    fn damaged(&self) -> turbidite::Result<MemoryFs> {
        let fs = self.sample.fs.fork();
        let file = self.file();
        let open = || fs.open(&file.path, Access::Write, Layer::Positional);
        match &self.damage {
            Damage::Bit(bit) => fs.corrupt(&file.path, bit / 8, 1 << (bit % 8))?,
            Damage::Byte(at) => fs.corrupt(&file.path, *at, 0xff)?,
            Damage::Cut(len) => open()?.truncate(*len)?,
            Damage::Missing => fs.remove(&file.path)?,
            Damage::Sector(offset, filling) => {
                open()?.write_at(*offset, &self.sector(*offset as usize, *filling))?;
            }
            Damage::Stale(offset) => {
                let bytes: Vec<_> = self.stale(*offset as usize).map(|(_, byte)| byte).collect();
                open()?.write_at(*offset, &bytes)?;
            }
            &Damage::Misplaced { block, from, to } => {
                open()?.write_at(to, self.misplaced(block, from, to))?;
            }
            Damage::Swapped(other) => {
                let other = self.other(other).expect("the case exists");
                fs.write_file(&file.path, &other.bytes)?;
                fs.write_file(&other.path, &file.bytes)?;
            }
            Damage::Foreign => {
                fs.write_file(&file.path, file.foreign.as_ref().expect("the case exists"))?;
            }
        }
        Ok(fs)
    }

    /// What the page at `offset` had before, by the place of each byte.
    fn stale(&self, offset: usize) -> impl Iterator<Item = (usize, u8)> {
        let file = self.file();
        let end = (offset + PAGE).min(file.earlier.len()).min(file.bytes.len());
        (offset..end).map(|at| (at, file.earlier[at]))
    }

    /// What the block at `to` has instead: as much of that at `from` as there is, and as there is room for.
    fn misplaced(&self, block: Block, from: u64, to: u64) -> &[u8] {
        let bytes = &self.file().bytes;
        let (from, to) = (from as usize, to as usize);
        let len = block.len().min(bytes.len() - from).min(bytes.len() - to);
        &bytes[from..from + len]
    }

    /// Those of `bytes` that differ from what the file has from `offset` on, by their places.
    fn changed_by<'b>(
        &'b self,
        offset: u64,
        bytes: &'b [u8],
    ) -> impl Iterator<Item = (usize, u8)> + use<'b> {
        let places = (offset as usize..).zip(bytes.iter().copied());
        places.filter(|&(at, byte)| byte != self.file().bytes[at])
    }

    /// What the sector at `offset` has instead.
    fn sector(&self, offset: usize, filling: Filling) -> Vec<u8> {
        let len = SECTOR.min(self.file().bytes.len() - offset);
        match filling {
            Filling::Zeros => vec![0; len],
            Filling::Garbage => {
                Dice::new(choices::mix(self.sample.setting.seed, offset)).bytes(len)
            }
        }
    }

    /// What depends on what is damaged.
    fn meaning(&self) -> Meaning {
        let file = self.file();
        let at_once = |is_optional: bool| if is_optional { Meaning::Hint } else { Meaning::Needed };
        let is_optional = places::is_tail(&file.name) || file.is_prepared;
        match &self.damage {
            Damage::Bit(bit) => file.places.meaning((bit / 8) as usize),
            Damage::Byte(at) => file.places.meaning(*at as usize),
            Damage::Cut(len) => at_once(is_optional || file.places.is_behind_all(*len as usize)),
            Damage::Missing => at_once(is_optional),
            Damage::Sector(offset, filling) => self.meaning_of_sector(*offset as usize, *filling),
            Damage::Stale(offset) => {
                let changed =
                    self.stale(*offset as usize).filter(|&(at, byte)| byte != file.bytes[at]);
                let meanings = changed.map(|(at, _)| file.places.meaning_if_older(at));
                meanings.max().unwrap_or(Meaning::Unused)
            }
            &Damage::Misplaced { block, from, to } => {
                let changed = self.changed_by(to, self.misplaced(block, from, to));
                let meanings = changed.map(|(at, byte)| file.places.meaning_if_misplaced(at, byte));
                meanings.max().unwrap_or(Meaning::Unused)
            }
            Damage::Swapped(other) => {
                let other = self.other(other);
                at_once(file.is_prepared && other.is_some_and(|other| other.is_prepared))
            }
            Damage::Foreign => at_once(file.is_prepared),
        }
    }

    fn meaning_of_sector(&self, offset: usize, filling: Filling) -> Meaning {
        let file = self.file();
        let sector = self.sector(offset, filling);
        let changed = self.changed_by(offset as u64, &sector);
        let meanings = changed.map(|(at, _)| match filling {
            Filling::Zeros => file.places.meaning_if_zeros(at),
            Filling::Garbage => file.places.meaning(at),
        });
        meanings.max().unwrap_or(Meaning::Unused)
    }

    /// What the damaged sample is opened for. A reader recovers, reads and verifies the same in two thirds of the time, as it starts one
    /// thread: of the bits of a byte, one is met by a writer, and the others by readers.
    fn opening(&self) -> Opening {
        match self.damage {
            Damage::Bit(bit) => {
                let chosen = choices::mix(self.sample.setting.seed, bit / 8) % 8;
                if bit % 8 == chosen { Opening::Writing } else { Opening::Reading }
            }
            _ => Opening::Writing,
        }
    }

    /// The seed of what is done with the damaged sample once it was examined, if something is.
    fn onward(&self) -> Option<u64> {
        let seed = choices::mix(self.sample.setting.seed, ("onward", self.id().to_string()));
        let every = match self.damage {
            Damage::Bit(_) => GONE_ON_BITS,
            Damage::Byte(_) | Damage::Cut(_) => GONE_ON,
            _ => 1,
        };
        (self.opening() == Opening::Writing && seed.is_multiple_of(every)).then_some(seed)
    }

    /// The files that are damaged.
    fn damaged_files(&self) -> impl Iterator<Item = &Sampled> {
        let other = match &self.damage {
            Damage::Swapped(other) => self.other(other),
            _ => None,
        };
        std::iter::once(self.file()).chain(other)
    }

    /// Whether what was told is that there is damage, in these files, and nowhere else.
    fn judge_told(&self, told: &[Told]) -> Result<(), String> {
        let other = told.iter().find(|told| !is_damage(told.error.kind()));
        if let Some(Told { error, .. }) = other {
            return Err(format!("damage is told as something else: {error:?}"));
        }
        let names = |file: &Path| self.damaged_files().any(|damaged| is_told_of(damaged, file));
        let is_named = told.iter().any(|told| match &told.error {
            Error::Corruption { file, .. } | Error::NewerFormat { file, .. } => names(file),
            _ => true,
        });
        // Which of two files belongs to another database, when one of them is the catalog, cannot be told.
        let is_open = self.damage == Damage::Foreign && self.file().is_catalog();
        if !told.is_empty() && !is_named && !is_open {
            return Err(format!("the damage is told of other files: {told:?}"));
        }
        self.judge_keyspaces(told)
    }

    /// Whether no keyspace was told of that has nothing to do with the damage.
    fn judge_keyspaces(&self, told: &[Told]) -> Result<(), String> {
        let keyspaces: Vec<_> = self.damaged_files().map(Sampled::number_of_keyspace).collect();
        let is_of_another = |told: &&Told| {
            let number = told.keyspace.as_ref().map(|name| self.sample.number_of(name));
            number.is_some_and(|number| !keyspaces.contains(&Some(number)))
        };
        // What all keyspaces need is damaged, or the ones that cannot be read are.
        match told.iter().find(is_of_another) {
            Some(Told { keyspace, error }) if !keyspaces.contains(&None) => {
                Err(format!("{keyspace:?} cannot be read, but nothing of it is damaged: {error:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether so many of the last commits, which were not synced, could be lost. The very last one may not even look like one any more. Nobody
    /// knows of those in the tail if it cannot be read, or of those in a segment with no others; but one byte of the tail is one record, or
    /// one of two headers.
    fn judge_lost(&self, lost: usize, verdict: Verdict) -> Result<(), String> {
        let file = self.file();
        let is_silent = verdict == Verdict::Silent;
        let is_byte = matches!(self.damage, Damage::Bit(_) | Damage::Byte(_));
        let is_unknown = file.is_prepared || places::is_tail(&file.name) && !is_byte;
        let can_be_told = lost > 1 && !is_unknown;
        match self.meaning() {
            _ if lost == 0 => Ok(()),
            Meaning::Hint if !(is_silent && can_be_told) => Ok(()),
            meaning => Err(format!("{lost} commits are lost, {verdict:?}, {meaning:?}")),
        }
    }

    /// Whether what failed when the damaged sample was gone on with had to, where that had come of examining it.
    fn judge_onward(&self, verdict: Verdict, told: &[Told]) -> Result<(), String> {
        let is_because = |told: &&Told| match told.error.kind() {
            ErrorKind::Poisoned => !told.error.to_string().contains("panic"),
            kind => is_damage(kind),
        };
        if let Some(told) = told.iter().find(|told| !is_because(told)) {
            return Err(format!("going on fails, and not because of damage: {told:?}"));
        }
        match told.first() {
            Some(told) if verdict == Verdict::Silent => {
                Err(format!("nothing was told of, but going on fails: {told:?}"))
            }
            _ => self.judge_keyspaces(told),
        }
    }

    /// Opens and reads the damaged sample, and goes on with it.
    fn examine(&self) -> Result<(Verdict, bool), String> {
        let setting = self.sample.setting;
        let fs = self.damaged().map_err(|error| format!("cannot be made: {error:?}"))?;
        let mut wanted = self.sample.wanted();
        let Examined { verdict, found, told, opened } =
            examine_any(&fs, setting.layer, &wanted, self.opening())?;
        self.judge_told(&told)?;
        let verdict = judge(verdict, self.meaning())?;
        self.judge_lost(found, verdict)?;
        let (Some((db, fs)), Some(seed)) = (opened, self.onward()) else {
            return Ok((verdict, false));
        };
        let told = onward::go_on(db, &fs, setting.layer, wanted.swap_remove(found), seed)?;
        self.judge_onward(verdict, &told)?;
        Ok((verdict, true))
    }

    /// Examines the damaged sample. A panic is a problem like any other.
    fn check(&self) -> Report {
        let examined = panics::caught(|| watched(self.id(), || self.examine()));
        let mut report = match examined.unwrap_or_else(Err) {
            Ok((verdict, is_gone_on_with)) => {
                let mut report = Report { cases: 1, ..Report::default() };
                report.count(verdict.name(), 1);
                report.count("gone on with", is_gone_on_with.into());
                report
            }
            Err(problem) => Report::of_violation(self.id(), problem),
        };
        report.operations = 1;
        report.fire(self.damage.kind(), 1);
        report
    }
}

/// Whether errors of this kind tell of damage.
fn is_damage(kind: ErrorKind) -> bool {
    use ErrorKind::{Corruption, NewerFormat, NotADatabase};
    matches!(kind, Corruption | NewerFormat | NotADatabase)
}

/// Whether an error that names a file tells of one that is damaged.
fn is_told_of(damaged: &Sampled, file: &Path) -> bool {
    let log = Path::new(history::PATH).join("log");
    let is_of_log = |file: &Path| file.starts_with(&log);
    // Of a file that is missing nobody knows the number. What the log should have and has not is missed behind the last of what it has.
    let without_number = damaged.path.to_str().and_then(|path| path.rsplit_once('-'));
    damaged.path == *file
        || without_number.is_some_and(|(path, _)| file == Path::new(path))
        || is_of_log(&damaged.path) && is_of_log(file)
}

/// Whether that had to come of damage to what means so much.
fn judge(verdict: Verdict, meaning: Meaning) -> Result<Verdict, String> {
    match (meaning, verdict) {
        (Meaning::Needed, Verdict::Silent) => Err("nobody has noticed".into()),
        (Meaning::Needed, Verdict::Dropped) => Err("verify has not noticed".into()),
        (Meaning::Unused, Verdict::Refused | Verdict::Reported | Verdict::Dropped) => {
            Err(format!("nothing depends on it, but the database is {verdict:?}"))
        }
        _ => Ok(verdict),
    }
}

/// Examines a sample as it is and, if it is opened for writing, goes on with it: nothing may be told of.
fn examine_undamaged(sample: &Sample, opening: Opening) -> Result<(), String> {
    let Sample { setting, contents, .. } = sample;
    let wanted = examine::wanted(contents);
    let one = std::slice::from_ref(&wanted);
    let examined = examine_any(&sample.fs.fork(), setting.layer, one, opening)?;
    let mut told = examined.told;
    if let (Some((db, fs)), Opening::Writing) = (examined.opened, opening) {
        told.extend(onward::go_on(db, &fs, setting.layer, wanted, setting.seed)?);
    }
    match examined.verdict {
        Verdict::Silent if told.is_empty() => Ok(()),
        verdict => Err(format!("it is {verdict:?}: {told:?}")),
    }
}

/// The database of a setting in all states, and without any damage.
fn make(setting: Setting) -> Result<[Sample; 3], Report> {
    let name = format!("flip/{setting}");
    let make = || {
        State::ALL.map(|state| {
            let sample = Sample::new(setting, state);
            for opening in [Opening::Reading, Opening::Writing] {
                let told = examine_undamaged(&sample, opening);
                assert_eq!(told, Ok(()), "undamaged, {state}, {opening:?}");
            }
            sample
        })
    };
    panics::caught(|| watched(name.clone(), make))
        .map_err(|panic| Report::of_violation(name, panic))
}

/// Makes the database of a setting, and damages nothing.
pub fn run_without(setting: Setting) -> Report {
    match make(setting) {
        Ok(samples) => Report { cases: samples.len() as u64, ..Report::default() },
        Err(report) => report,
    }
}

/// Makes the database of a setting in all [states](State), damages it where `effort` says, and examines what is left, for as long as it is to `go_on` with the case of this name, in as
/// many threads as there are processors. What comes first is of all files. A case is an opening of a damaged database; how many of them were `refused`, in how many `verify` found the
/// damage, of how many the recovery had dropped it and said so, and how many said nothing, because nothing depends on what was damaged, is counted, how many were `gone on with`,
/// and how many bytes of how many files are in use.
pub fn run(
    setting: Setting,
    effort: Effort,
    go_on: impl Fn(&dyn fmt::Display) -> bool + Sync,
) -> Report {
    let samples = match make(setting) {
        Ok(samples) => samples,
        Err(report) => return report,
    };
    let plan = Plan::new(setting.seed, &samples, effort.every as u64);
    let cases = plan.cases().filter(Case::exists);
    let mut sum = workers::sum(cases, |case| go_on(&format_args!("{case:?}")), |case| case.check());
    sum.count("files", samples.iter().map(|sample| sample.files.len() as u64).sum());
    sum.count("bytes", samples.iter().map(Sample::used_bytes).sum());
    sum
}

/// Looks for less damage that fails, too, at the place of that of this violation of [`run`], for about so long: a byte of what was damaged, and a bit of that. `None` if
/// there is none.
#[must_use]
pub fn shorten(violation: &Violation, time: Duration) -> Option<Violation> {
    let id: CaseId = violation.case.parse().ok()?;
    let until = Instant::now() + time;
    let sample = Sample::new(id.setting, id.state);
    let file = sample.find(&id.file)?;
    let mut found: Option<Violation> = None;
    let mut damage = id.damage;
    while let Some(violation) = {
        let case = |damage| Case { sample: &sample, file, damage };
        let cases = damage.smaller().into_iter().map(case).filter(Case::exists);
        workers::first_failing(cases, until, |case| case.check())
    } {
        damage = violation.case.parse::<CaseId>().ok()?.damage;
        found = Some(violation);
    }
    found
}

/// Tries one case again. With the feature `simulation` the damaged files are the very same.
///
/// # Errors
/// If there is no such case.
pub fn replay(id: CaseId) -> Result<Report, Unknown> {
    let sample = Sample::new(id.setting, id.state);
    let case =
        sample.find(&id.file).map(|file| Case { sample: &sample, file, damage: id.damage.clone() });
    match case.filter(Case::exists) {
        Some(case) => Ok(case.check()),
        None => {
            Err(Unknown::new("case", &id.to_string(), "nothing like it can be damaged like that"))
        }
    }
}

#[cfg(test)]
mod tests;
