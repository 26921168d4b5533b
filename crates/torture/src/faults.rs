//! Errors of the file system at every call of a workload, kills, power cuts and the recoveries from them among it: one errno after the
//! other, once, until the disk is repaired, and until a crash when the store has told of it, all of one kind about one kind of files, too many open files, full disks, failed syncs, damaged reads, single ones of recoveries among them, storms of errors everywhere, and calls that take long.
//!
//! Whatever fails, what was acknowledged stays readable, survives the reopening, and survives a power loss if
//! it was synced; a write that failed is there whole or not at all; and once the disk is repaired the store goes on.

use std::collections::HashMap;
use std::fmt;
use std::mem::discriminant;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, PowerCut, Times};
use turbidite::{
    Database, DatabaseBuilder, Durability, EngineKind, Error, ErrorKind, Layer, RecoveryMode,
    Result, Snapshot,
};

use crate::choices::{self, mix};
use crate::history::{self, Change, Fingerprint, History, PARTS, Promise, WRITERS, WRITTEN, Write};
use crate::report::{Report, Violation};
use crate::setting::{Setting, Unknown};
use crate::steps::{self, Steps};
use crate::watch::watched;
use crate::{Dice, dice, panics, simulated, threads, workers};

/// What a file system may answer, by number and name.
const ERRNOS: [(i32, &str); 11] = [
    (5, "EIO"),
    (28, "ENOSPC"),
    (122, "EDQUOT"),
    (27, "EFBIG"),
    (24, "EMFILE"),
    (23, "ENFILE"),
    (12, "ENOMEM"),
    (NO_ACCESS, "EACCES"),
    (READ_ONLY, "EROFS"),
    (116, "ESTALE"),
    (19, "ENODEV"),
];
/// Nobody may open it.
const NO_ACCESS: i32 = 13;
/// Nothing may be changed.
const READ_ONLY: i32 = 30;
/// Those that are told after some bytes, or all of them.
const IN_PART: [i32; 2] = [5, 28];
/// So many bytes are moved before an error in the middle of them.
const SHORT: [usize; 8] = [1, 37, 512, 1536, 4096, 8192, 40_960, 65_536];
/// A misplaced read is of what lies so far before.
const MISPLACED: [u64; 4] = [512, 4096, 8192, 65_536];
/// How many storms there are for each setting, and how many disks that are slow.
const STORMS: u64 = 20;
/// So long a call takes that is slow.
const SLOW: Duration = Duration::from_millis(1);
/// How much room there is on disks that become full.
const ROOMS: [u64; 3] = [0, 20_000, 200_000];
/// What a sync says whose writes are lost: those that Linux keeps for it from the writing back.
const LOST: [i32; 3] = [5, 28, 122];

/// So many of the newest operations are lost, each by itself, where the power is cut after an error, and so many random parts of all.
const NEWEST: usize = 8;
const RANDOMS: u64 = 6;

/// So many calls of a kind about manifests, and about the catalog, end with a crash, each by itself.
const MANIFEST_CALLS: u64 = 24;
const CATALOG_CALLS: u64 = 8;

/// So many calls about files of one kind are well, before all of them fail.
const CALLS_OF_FILES: [u64; 3] = [0, 2, 20];
/// How many files more than there are may be open, if there is a limit.
const MORE_FILES: [u64; 3] = [0, 1, 3];

/// Kinds of files, by what is in their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files(&'static str);

impl Files {
    /// Of any kind.
    pub const ANY: Self = Self("");
    /// Each kind that a database has, of all engines; both segments of the log and its tail are of one.
    const KINDS: [Self; 9] = [
        Self::CATALOG,
        Self::MANIFEST,
        Self::LOG,
        Self(".table"),
        Self(".values"),
        Self(".data"),
        Self(".index"),
        Self("tree"),
        Self(".sorted"),
    ];

    /// The log, and the logs of edits. They are read up to an end of which nothing tells but what is there.
    const LOG: Self = Self(".log");
    const CATALOG: Self = Self("catalog-");
    const MANIFEST: Self = Self("manifest-");

    /// Whether nobody counts on one before it is complete.
    fn are_written_once(self) -> bool {
        [".table", ".values", ".index", ".sorted"].contains(&self.0)
    }

    fn named(name: &str) -> Option<Self> {
        Self::KINDS.into_iter().find(|known| known.0 == name)
    }
}

/// How often a call fails, and what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Often {
    /// Once.
    Once,
    /// Again and again, until the disk is repaired.
    Always,
    /// The same; and when a call to the store has failed, the process is killed or the power is cut.
    UntilCrash,
}

impl Often {
    const ALL: [Self; 3] = [Self::Once, Self::Always, Self::UntilCrash];

    fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Always => "always",
            Self::UntilCrash => "crash",
        }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// A call fails.
    Call {
        /// Of this kind,
        operation: Operation,
        /// after so many others of it,
        after: u64,
        /// alone, or with others that come after it.
        often: Often,
        /// In which way.
        effect: Effect,
        /// Only calls that are about these files count.
        files: Files,
    },
    /// From this step on a read of one of these files is wrong, once.
    Look {
        /// The number of the step, which is one that opens the database.
        step: usize,
        /// After so many other reads of them that are right.
        after: u64,
        /// In which way.
        effect: Effect,
        /// The files.
        files: Files,
    },
    /// A sync of a file fails, and what was to be synced is lost.
    LostSync {
        /// After so many others.
        after: u64,
        /// What it says.
        errno: i32,
    },
    /// The same of a directory: changes of names are lost.
    LostNames {
        /// After so many others.
        after: u64,
        /// What it says.
        errno: i32,
    },
    /// From this step on every call fails, until the disk is repaired.
    Dead {
        /// The number of the step.
        step: usize,
    },
    /// From this step on whatever would change something is refused, until the disk is repaired, as by a file system that has met an error.
    ReadOnly {
        /// The number of the step.
        step: usize,
    },
    /// From this step on only so many more files may be open than are, until as many may be as are wanted.
    OpenFiles {
        /// The number of the step.
        step: usize,
        /// The files.
        room: u64,
    },
    /// From this step on the disk has room for so many bytes more, until it has as many as are wanted.
    Full {
        /// The number of the step.
        step: usize,
        /// The bytes.
        room: u64,
    },
    /// One call in so many fails, of any kind.
    Storm {
        /// More calls are a weaker storm.
        calls: u64,
        /// Which ones.
        seed: u64,
    },
    /// One call in so many takes long, of any kind, and nothing fails.
    Slow {
        /// With more calls it is less slow.
        calls: u64,
        /// Which ones.
        seed: u64,
    },
}

impl Trouble {
    /// Whether reads give other bytes than were written.
    fn is_damage(self) -> bool {
        use Effect::{Flip, FlipBack, Misplace, Stale};
        match self {
            Self::Call { effect, .. } | Self::Look { effect, .. } => {
                matches!(effect, Flip(_) | FlipBack(_) | Misplace(_) | Stale)
            }
            _ => false,
        }
    }

    /// Whether reads give what was there before.
    fn is_staleness(self) -> bool {
        matches!(
            self,
            Self::Call { effect: Effect::Stale, .. } | Self::Look { effect: Effect::Stale, .. }
        )
    }

    /// Whether it comes once, and never again.
    fn is_once(self) -> bool {
        matches!(self, Self::Call { often: Often::Once, .. } | Self::Look { .. })
    }

    /// Whether the errno, if there is one, says that there is no room.
    fn is_want_of_space(self) -> bool {
        let is_one = |errno| [Errno::Raw(28), Errno::Raw(122), Errno::Raw(27)].contains(&errno);
        match self {
            Self::Call { effect, .. } => match effect {
                Effect::Fail(errno) | Effect::FailDone(errno) | Effect::FailShort(_, errno) => {
                    is_one(errno)
                }
                _ => false,
            },
            Self::LostSync { errno, .. } | Self::LostNames { errno, .. } => {
                is_one(Errno::Raw(errno))
            }
            Self::Full { .. } => true,
            Self::Look { .. }
            | Self::Dead { .. }
            | Self::ReadOnly { .. }
            | Self::OpenFiles { .. }
            | Self::Storm { .. }
            | Self::Slow { .. } => false,
        }
    }

    /// Whether no write fails by it. Layers of whole blocks read what is beside what they write.
    fn is_of_reads(self, layer: Layer) -> bool {
        use Operation::{Length, List, Open, Read};
        let has_blocks = !matches!(layer, Layer::Mmap | Layer::Positional);
        match self {
            Self::Call { operation: Length | List | Open, .. } => true,
            Self::Call { operation: Read, .. } | Self::Look { .. } => !has_blocks,
            _ => false,
        }
    }

    /// Whether a call is refused as a whole for want of room, on the disk or in the table of open files, which leaves nothing unknown. What a sync
    /// has written is unknown, whatever it says; and where what was promised is written to a place that was reserved for it, as in the log, it
    /// cannot be taken back. Layers of whole blocks read there what is beside what they write, and then the write fails by the read.
    fn is_refusal_for_want(self) -> bool {
        use Operation::{Create, List, Lock, Open, Read, Rename, Sync, SyncDir, Write};
        match self {
            Self::Call { operation: Sync | SyncDir, .. } => false,
            // An edit is taken back whatever of it was written, and a new file that has its name counts.
            Self::Call {
                operation: Write | Rename,
                files: Files::MANIFEST | Files::CATALOG,
                effect: Effect::Fail(_) | Effect::FailDone(_) | Effect::FailShort(..),
                ..
            } => self.is_want_of_space(),
            Self::Call { operation: Read | Write, files, .. } if !files.are_written_once() => false,
            Self::Call { operation, effect: Effect::Fail(errno), .. } => {
                let opens = matches!(operation, Create | List | Lock | Open);
                let is_too_many = opens && [Errno::Raw(23), Errno::Raw(24)].contains(&errno);
                is_too_many || self.is_want_of_space()
            }
            _ => false,
        }
    }

    /// Whether an error of this kind tells of it: what cannot be known of a disk is not said of it.
    fn may_be_told_as(self, kind: ErrorKind, layer: Layer) -> bool {
        match kind {
            // Where there is no room nothing is lost by going on, nor if nothing can be opened.
            ErrorKind::Poisoned => {
                let is_limit = matches!(self, Self::Full { .. } | Self::OpenFiles { .. });
                !self.is_of_reads(layer) && !is_limit && !self.is_refusal_for_want()
            }
            ErrorKind::NoSpace => self.is_want_of_space(),
            ErrorKind::Io => !matches!(self, Self::Full { .. }) && !self.is_damage(),
            ErrorKind::Corruption | ErrorKind::NotADatabase | ErrorKind::NewerFormat => {
                self.is_damage()
            }
            _ => false,
        }
    }

    /// What it is counted as: the call, and what it met.
    fn kind(self) -> String {
        match self {
            Self::Call { operation, often: Often::UntilCrash, .. } => {
                format!("{operation} and-crash")
            }
            Self::Call { operation, effect, files: Files::ANY, .. } => {
                let name = effect_name(effect);
                format!(
                    "{operation} {}",
                    name.trim_end_matches(|c: char| "-0123456789".contains(c))
                )
            }
            Self::Call { operation, files, .. } => format!("{operation} of-{}", files.0),
            Self::Look { files, .. } => format!("read opening-{}", files.0),
            Self::LostSync { errno, .. } => format!("sync lost-{}", errno_name(errno)),
            Self::LostNames { errno, .. } => format!("sync-dir lost-{}", errno_name(errno)),
            Self::Dead { .. } => "any dead-disk".into(),
            Self::ReadOnly { .. } => "any read-only-disk".into(),
            Self::OpenFiles { .. } => "any open-files".into(),
            Self::Full { .. } => "any full-disk".into(),
            Self::Storm { .. } => "any storm".into(),
            Self::Slow { .. } => "any slow".into(),
        }
    }
}

fn errno_name(number: i32) -> &'static str {
    ERRNOS.iter().find(|known| known.0 == number).map_or("errno", |known| known.1)
}

fn errno_named(name: &str) -> Option<i32> {
    ERRNOS.iter().find(|known| known.1 == name).map(|known| known.0)
}

fn effect_name(effect: Effect) -> String {
    let name = |errno| match errno {
        Errno::Raw(number) => errno_name(number),
        Errno::Kind(_) => "error",
    };
    match effect {
        Effect::Fail(errno) => name(errno).into(),
        Effect::FailDone(errno) => format!("{}-done", name(errno)),
        Effect::FailShort(bytes, errno) => format!("{}-short-{bytes}", name(errno)),
        Effect::Flip(bit) => format!("flip-{bit}"),
        Effect::FlipBack(bit) => format!("flip-back-{bit}"),
        Effect::Misplace(distance) => format!("misplaced-{distance}"),
        Effect::Stale => "stale".into(),
        Effect::Delay(time) => format!("delay-{}", time.as_millis()),
        Effect::Panic => "panic".into(),
    }
}

fn effect_named(name: &str) -> Option<Effect> {
    let parts: Vec<_> = name.split('-').collect();
    let errno = |name| errno_named(name).map(Errno::Raw);
    Some(match parts[..] {
        ["flip", bit] => Effect::Flip(bit.parse().ok()?),
        ["flip", "back", bit] => Effect::FlipBack(bit.parse().ok()?),
        ["misplaced", distance] => Effect::Misplace(distance.parse().ok()?),
        ["stale"] => Effect::Stale,
        [name] => Effect::Fail(errno(name)?),
        [name, "done"] => Effect::FailDone(errno(name)?),
        [name, "short", bytes] => Effect::FailShort(bytes.parse().ok()?, errno(name)?),
        _ => return None,
    })
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Call { operation, after, often, effect, files } => {
                write!(f, "{operation}:{after}:{}:{}", often.name(), effect_name(effect))?;
                if files == Files::ANY { Ok(()) } else { write!(f, ":{}", files.0) }
            }
            Self::Look { step, after, effect, files } => {
                write!(f, "look:{step}:{after}:{}:{}", effect_name(effect), files.0)
            }
            Self::LostSync { after, errno } => {
                write!(f, "lost-sync:{after}:{}", errno_name(errno))
            }
            Self::LostNames { after, errno } => {
                write!(f, "lost-names:{after}:{}", errno_name(errno))
            }
            Self::Dead { step } => write!(f, "dead:{step}"),
            Self::ReadOnly { step } => write!(f, "read-only:{step}"),
            Self::OpenFiles { step, room } => write!(f, "open-files:{step}:{room}"),
            Self::Full { step, room } => write!(f, "full:{step}:{room}"),
            Self::Storm { calls, seed } => write!(f, "storm:{calls}:{seed}"),
            Self::Slow { calls, seed } => write!(f, "slow:{calls}:{seed}"),
        }
    }
}

/// The name of a case. Its text is `faults/SEED/ENGINES/LAYER/TROUBLE`, as in `faults/7/all/mmap/write:120:once:EIO` or
/// `faults/7/all/mmap/write:2:always:EIO:.table`, with the [steps](Steps) behind it if not all are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaseId {
    /// Workload, engines and files.
    pub setting: Setting,
    /// What goes wrong.
    pub trouble: Trouble,
    /// The steps of the workload that are done.
    pub steps: Steps,
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faults/{}/{}{}", self.setting, self.trouble, self.steps.suffix())
    }
}

impl FromStr for CaseId {
    type Err = Unknown;

    fn from_str(text: &str) -> std::result::Result<Self, Unknown> {
        let parse = || {
            let (parts, steps) = Steps::split(text)?;
            let &["faults", seed, engines, layer, trouble] = &parts[..] else { return None };
            let parts: Vec<_> = trouble.split(':').collect();
            let trouble = match parts[..] {
                ["lost-sync", after, errno] => Trouble::LostSync {
                    after: after.parse().ok()?,
                    errno: errno_named(errno).filter(|errno| LOST.contains(errno))?,
                },
                ["lost-names", after, errno] => Trouble::LostNames {
                    after: after.parse().ok()?,
                    errno: errno_named(errno).filter(|errno| LOST.contains(errno))?,
                },
                ["dead", step] => Trouble::Dead { step: step.parse().ok()? },
                ["read-only", step] => Trouble::ReadOnly { step: step.parse().ok()? },
                ["open-files", step, room] => {
                    Trouble::OpenFiles { step: step.parse().ok()?, room: room.parse().ok()? }
                }
                ["full", step, room] => {
                    Trouble::Full { step: step.parse().ok()?, room: room.parse().ok()? }
                }
                ["look", step, after, effect, files] => Trouble::Look {
                    step: step.parse().ok()?,
                    after: after.parse().ok()?,
                    effect: effect_named(effect)?,
                    files: Files::named(files)?,
                },
                ["storm", calls, seed] => {
                    Trouble::Storm { calls: calls.parse().ok()?, seed: seed.parse().ok()? }
                }
                ["slow", calls, seed] => {
                    Trouble::Slow { calls: calls.parse().ok()?, seed: seed.parse().ok()? }
                }
                [operation, after, often, effect, ref files @ ..] => Trouble::Call {
                    operation: Operation::ALL
                        .into_iter()
                        .find(|known| known.to_string() == operation)?,
                    after: after.parse().ok()?,
                    often: Often::ALL.into_iter().find(|known| known.name() == often)?,
                    effect: effect_named(effect)?,
                    files: match files {
                        [] => Files::ANY,
                        [name] => Files::named(name)?,
                        _ => return None,
                    },
                },
                _ => return None,
            };
            let setting = [seed, engines, layer].join("/").parse().ok()?;
            Some(Self { setting, trouble, steps })
        };
        parse()
            .ok_or_else(|| Unknown::new("case", text, "as in faults/7/all/mmap/write:120:once:EIO"))
    }
}

/// What the workload does at each step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(&'static str),
    /// Opens the keyspace with other options.
    Choose(&'static str),
    /// So many small commits.
    Commit(usize),
    /// So many commits of each of several threads.
    Together(usize),
    FlushLog,
    /// A commit of so many bytes.
    Large(usize),
    /// A sorted load, where there is such a thing.
    Load(&'static str),
    /// Empties the keyspace, where that can be done at once.
    Clear(&'static str),
    PersistKeyspace(&'static str),
    Persist,
    Compact(&'static str),
    /// Takes a snapshot, which is kept until the next opening.
    Hold,
    /// Looks whether the snapshot has what it had.
    Look,
    Verify,
    /// Closes the database, looks at it with an opening for reading only, and opens it again.
    Reopen,
    /// The process is killed, and the database opened again.
    Kill,
    /// The same with the power cut, if what is read is not damaged.
    CutPower,
}

impl Step {
    /// Whether it opens the database.
    fn opens(self) -> bool {
        matches!(self, Self::Reopen | Self::Kill | Self::CutPower)
    }

    /// The keyspace that it does something with, which is to be there.
    fn keyspace(self) -> Option<&'static str> {
        match self {
            Self::Choose(name)
            | Self::Load(name)
            | Self::Clear(name)
            | Self::PersistKeyspace(name)
            | Self::Compact(name) => Some(name),
            _ => None,
        }
    }
}

/// Each commit has a write to the first keyspace: that step is always done.
const WORKLOAD: &[Step] = &[
    Step::Create("alpha"),
    Step::Create("unlogged"),
    Step::Commit(4),
    Step::Create("beta"),
    Step::Create("loose"),
    Step::Create("gamma"),
    Step::Create("stray"),
    Step::Create("delta"),
    Step::Create("apart"),
    Step::Create("late"),
    Step::Together(3),
    Step::Load("delta"),
    Step::Load("unlogged"),
    Step::Large(90_000),
    Step::Large(90_000),
    Step::Commit(3),
    Step::PersistKeyspace("alpha"),
    Step::Commit(3),
    Step::Kill,
    Step::Commit(2),
    Step::FlushLog,
    Step::Persist,
    Step::Hold,
    Step::Large(150_000),
    Step::PersistKeyspace("alpha"),
    Step::PersistKeyspace("beta"),
    Step::PersistKeyspace("loose"),
    Step::PersistKeyspace("gamma"),
    Step::PersistKeyspace("stray"),
    Step::PersistKeyspace("delta"),
    Step::PersistKeyspace("apart"),
    Step::Commit(2),
    Step::Compact("alpha"),
    Step::Compact("beta"),
    Step::Compact("gamma"),
    Step::Compact("delta"),
    Step::Look,
    Step::Clear("delta"),
    Step::Load("alpha"),
    Step::Clear("stray"),
    Step::Look,
    Step::Commit(3),
    Step::Verify,
    Step::CutPower,
    Step::Commit(2),
    Step::Together(2),
    Step::Reopen,
    Step::Choose("alpha"),
    Step::Choose("unlogged"),
    Step::Commit(4),
    Step::Clear("alpha"),
    Step::Load("apart"),
    Step::Commit(2),
    Step::PersistKeyspace("unlogged"),
    Step::Compact("unlogged"),
    Step::PersistKeyspace("stray"),
    Step::PersistKeyspace("gamma"),
    Step::PersistKeyspace("delta"),
    Step::Compact("loose"),
    Step::Compact("apart"),
    Step::Large(200_000),
    Step::Compact("beta"),
    Step::Verify,
    Step::Commit(3),
    Step::FlushLog,
    // What the recovery shows is not lost with the power, which is cut then.
    Step::Kill,
];

/// A snapshot, and what it showed first.
struct Held {
    snapshot: Snapshot,
    records: Vec<Change>,
}

/// The workload under way, over a file system with faults.
struct Run {
    setting: Setting,
    steps: Steps,
    trouble: Option<Trouble>,
    memory: MemoryFs,
    /// The bytes that the disk has room for, if it is full.
    quota: Option<u64>,
    /// Whether the disk refuses changes.
    is_read_only: bool,
    /// How many syncs were lost before the last crash.
    lost_syncs: u64,
    /// How many reads of the log, and of manifests, were damaged before the opening that succeeded.
    damaged_before: (u64, u64),
    faulty: FaultFs,
    db: Option<Database>,
    held: Option<Held>,
    /// What the crashes since it was open last have left.
    cut: PowerCut,
    openings: u64,
    /// The keyspaces that were made.
    made: Vec<&'static str>,
    /// The one that is being made.
    creating: Option<&'static str>,
    history: History,
    /// How many commits of each writer were acknowledged.
    acknowledged: [usize; WRITERS],
    /// How often writers have begun or acknowledged something.
    order: Arc<AtomicUsize>,
    dice: Dice,
    /// A commit failed and it is unknown whether it is there.
    unsure: bool,
    /// There was the crash that was to come when a call has failed.
    is_crashed: bool,
    /// The database was opened once, which on a full disk nothing can be made for.
    is_made: bool,
    /// What went wrong, to be told with a failure.
    told: Vec<String>,
}

/// So often something is tried before the disk is repaired, and again afterwards.
const ATTEMPTS: usize = 3;

impl Run {
    fn new(setting: Setting, steps: Steps, trouble: Option<Trouble>) -> Self {
        let memory = MemoryFs::traced();
        let faulty = FaultFs::new(Arc::new(memory.clone()));
        let (history, dice) = (History::of(setting), Dice::new(setting.seed));
        Self {
            setting,
            steps,
            trouble,
            memory,
            quota: None,
            is_read_only: false,
            lost_syncs: 0,
            damaged_before: (0, 0),
            faulty,
            db: None,
            held: None,
            cut: PowerCut::KeepAll,
            openings: 0,
            made: Vec::new(),
            creating: None,
            history,
            acknowledged: [0; WRITERS],
            order: Arc::default(),
            dice,
            unsure: false,
            is_crashed: false,
            is_made: false,
            told: Vec::new(),
        }
    }

    fn tell(&mut self, what: &str, error: &Error) {
        let text = format!("{what}: {error:?}");
        assert!(!text.contains("panic"), "{text}");
        let is_slow = matches!(self.trouble, Some(Trouble::Slow { .. }));
        assert!(!is_slow, "the disk is only slow, but: {text}");
        let layer = self.setting.layer;
        let is_right =
            self.trouble.is_some_and(|trouble| trouble.may_be_told_as(error.kind(), layer));
        assert!(is_right, "{:?} is told as {text} after {:#?}", self.trouble, self.told);
        self.told.push(text);
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open")
    }

    /// Makes trouble, as far as it is to begin before this step.
    fn trouble_before(&mut self, at: usize) {
        match self.trouble {
            Some(Trouble::Call { operation, after, often, effect, files }) if at == 0 => {
                let times = if often == Often::Once { Times::Once } else { Times::Always };
                // A directory above that one may not open is not one of those that were made here, and need not be synced.
                let is_of_others = operation == Operation::SyncDir
                    && effect == Effect::Fail(Errno::Raw(NO_ACCESS));
                let within = if is_of_others { history::PATH } else { "" }.into();
                let name_contains = files.0.into();
                let fault = Fault::new(operation, effect);
                self.faulty.arm(Fault { name_contains, within, after, times, ..fault });
            }
            Some(Trouble::Look { step, after, effect, files }) if at == step => {
                let fault = Fault::new(Operation::Read, effect);
                self.faulty.arm(Fault { name_contains: files.0.into(), after, ..fault });
            }
            // What it shows was written over before.
            Some(Trouble::Look { effect: Effect::Stale, .. }) if at == 0 => self.faulty.remember(),
            Some(Trouble::LostSync { after, errno }) if at == 0 => {
                self.memory.lose_sync_after(after, Errno::Raw(errno));
            }
            Some(Trouble::LostNames { after, errno }) if at == 0 => {
                self.memory.lose_dir_sync_after(after, Errno::Raw(errno));
            }
            Some(Trouble::Dead { step }) if at == step => {
                for operation in Operation::ALL {
                    self.refuse(operation, 5);
                }
            }
            Some(Trouble::ReadOnly { step }) if at == step => {
                self.make_read_only(true);
                // Changes that were accepted before cannot be brought to the disk either.
                for operation in [Operation::Sync, Operation::SyncDir] {
                    self.refuse(operation, READ_ONLY);
                }
            }
            Some(Trouble::OpenFiles { step, room }) if at == step => {
                self.faulty.limit_open_files(Some(self.faulty.open_files() + room));
            }
            Some(Trouble::Full { step, room }) if at == step => {
                let files = self.memory.files();
                let used: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
                self.limit(Some(used + room));
            }
            Some(Trouble::Storm { calls, seed }) => {
                self.storm(Effect::Fail(Errno::Raw(5)), calls, mix(seed, at));
            }
            Some(Trouble::Slow { calls, seed }) => {
                self.storm(Effect::Delay(SLOW), calls, mix(seed, at));
            }
            _ => {}
        }
    }

    /// From now on each call of this kind fails.
    fn refuse(&self, operation: Operation, errno: i32) {
        let effect = Effect::Fail(Errno::Raw(errno));
        self.faulty.arm(Fault { times: Times::Always, ..Fault::new(operation, effect) });
    }

    fn make_read_only(&mut self, read_only: bool) {
        self.is_read_only = read_only;
        self.memory.set_read_only(read_only);
    }

    /// From now on one in so many calls meets that.
    fn storm(&self, effect: Effect, calls: u64, seed: u64) {
        self.faulty.disarm();
        for operation in Operation::ALL {
            let times = Times::OneIn { calls, seed: mix(seed, operation) };
            self.faulty.arm(Fault { times, ..Fault::new(operation, effect) });
        }
    }

    /// The disk has room for so many bytes.
    fn limit(&mut self, quota: Option<u64>) {
        self.quota = quota;
        self.memory.quota(quota);
    }

    fn repair(&mut self) {
        self.faulty.disarm();
        self.faulty.limit_open_files(None);
        self.limit(None);
        self.make_read_only(false);
    }

    /// How many reads of the log, and of manifests, were damaged so far.
    fn damaged_reads(&self) -> (u64, u64) {
        let log = Path::new(history::PATH).join("log");
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let is_manifest = |path: &Path| name(path).is_some_and(|it| it.starts_with("manifest-"));
        match self.trouble.is_some_and(Trouble::is_damage) {
            true => (
                self.faulty.fired_where(|path| path.starts_with(&log)),
                self.faulty.fired_where(is_manifest),
            ),
            false => (0, 0),
        }
    }

    /// Tries something until it succeeds: first with what is wrong, then with a disk that is repaired.
    fn persevere<T>(&mut self, what: &str, attempt: impl Fn(&mut Self) -> Result<T>) -> T {
        for number in 0..2 * ATTEMPTS {
            if number == ATTEMPTS {
                self.repair();
            }
            match attempt(self) {
                Ok(done) => return done,
                Err(error) => self.tell(what, &error),
            }
        }
        panic!("{what} does not succeed with a disk that is repaired: {:#?}", self.told)
    }

    /// Opens what is there, if it is not open.
    fn open(&mut self) {
        if self.db.is_some() {
            return;
        }
        let told = self.told.len();
        let seen = self.look_while_read_only();
        let db = self.persevere("open", |run| {
            run.damaged_before = run.damaged_reads();
            let opened = run.builder().open();
            if opened.is_err() {
                run.lose_after_failure();
            }
            opened
        });
        self.openings += 1;
        if std::mem::replace(&mut self.is_made, true) {
            self.expect_nothing_told_of_full_disk(told);
        }
        self.db = Some(db);
        let state = self.read();
        let is_same = seen.is_none_or(|seen| seen == state);
        assert!(is_same, "on a disk that is read-only another state is seen: {:#?}", self.told);
        self.check_recovered(state);
    }

    fn builder(&self) -> DatabaseBuilder {
        let fs = Arc::new(self.faulty.clone());
        let builder = history::builder(fs).log_layer(self.setting.layer);
        let builder = choices::database(builder, self.setting.seed, self.openings);
        match self.trouble {
            // What is read as damaged is what tolerant recovery drops.
            Some(trouble) if trouble.is_damage() => builder.recovery(RecoveryMode::Strict),
            _ => builder,
        }
    }

    /// What those see who only read, which a disk that refuses changes keeps nobody from.
    fn look_while_read_only(&self) -> Option<Fingerprint> {
        let is_there = self.is_made && self.is_read_only;
        is_there.then(|| {
            let state = self.look();
            state.unwrap_or_else(|e| panic!("read-only, on such a disk: {e:?}; {:#?}", self.told))
        })
    }

    /// What those see who only read.
    fn look(&self) -> Result<Fingerprint> {
        self.builder().read_only(true).open().and_then(|db| Fingerprint::of(&db))
    }

    /// Opens what a kill leaves at this moment, or a power cut; what was to go wrong goes wrong then.
    fn crash(&mut self, cut: PowerCut) {
        self.lose(cut);
        self.open();
    }

    /// Leaves what a kill leaves at this moment, or a power cut.
    fn lose(&mut self, cut: PowerCut) {
        let image = self.memory.image_traced(self.memory.operations(), cut);
        image.quota(self.quota);
        image.set_read_only(self.is_read_only);
        image.lose_sync_of(&self.memory);
        // What the handle does when it is dropped is done to a disk that nobody sees any more.
        self.faulty = self.faulty.moved_to(Arc::new(image.clone()));
        // The end of a file of edits as it was before, with the word of what was synced, cannot be told from the end that it has, if it is read so
        // whenever it is looked at: it would go on over what is there.
        if !self.trouble.is_some_and(Trouble::is_once) {
            self.faulty.forget_older(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                [Files::CATALOG, Files::MANIFEST].iter().any(|edits| name.starts_with(edits.0))
            });
        }
        self.held = None;
        drop(self.db.take());
        self.lost_syncs += self.memory.lost_syncs();
        self.memory = image;
        if cut != PowerCut::KeepAll {
            self.cut = cut;
        }
    }

    /// A crash, if there is to be one now that a call has failed.
    fn crash_after_failure(&mut self) -> bool {
        let is_due = self.lose_after_failure();
        if is_due {
            self.open();
        }
        is_due
    }

    fn lose_after_failure(&mut self) -> bool {
        let ends = matches!(self.trouble, Some(Trouble::Call { often: Often::UntilCrash, .. }));
        if !ends || std::mem::replace(&mut self.is_crashed, true) {
            return false;
        }
        self.look_at_cuts();
        let cut = if self.dice.roll(2) == 0 { PowerCut::KeepAll } else { self.power_cut() };
        self.lose(cut);
        true
    }

    /// What many power cuts at this moment leave must open, without faults, and be a state that there was.
    fn look_at_cuts(&self) {
        let (promised, at) = (self.history.promised(), self.memory.operations());
        let unsynced = self.memory.unsynced(at);
        let newest = unsynced.saturating_sub(NEWEST)..unsynced;
        let randoms = (0..RANDOMS).map(|seed| PowerCut::Random(mix(at as u64, seed)));
        let cuts = [PowerCut::KeepAll, PowerCut::DropUnsynced].into_iter();
        // A keyspace that could not be made is not there, unless that is unknown.
        let is_unknown = self.db.as_ref().is_none_or(|db| db.status().is_poisoned);
        let maybe = self.creating.filter(|_| is_unknown);
        for cut in cuts.chain(newest.map(PowerCut::DropAlone)).chain(randoms) {
            // The directory of a keyspace that was not made is made anew with the next one.
            drop(self.check_image(&self.memory.image(at, cut), cut, &promised, maybe));
        }
    }

    fn power_cut(&mut self) -> PowerCut {
        let seed = mix(self.setting.seed, self.memory.operations());
        let cuts = [PowerCut::DropUnsynced, PowerCut::Random(seed)];
        cuts[self.dice.roll(cuts.len())]
    }

    fn read(&mut self) -> Fingerprint {
        let told = self.told.len();
        let read = self.persevere("read", |run| Fingerprint::of(run.db()));
        self.expect_reads_to_succeed(told);
        read
    }

    /// All that a snapshot shows.
    fn read_held(&mut self, snapshot: &Snapshot) -> Vec<Change> {
        let told = self.told.len();
        let read = self.persevere("read", |run| run.records_of(snapshot));
        self.expect_reads_to_succeed(told);
        read
    }

    /// A disk that is full or read-only keeps nobody from reading.
    fn expect_reads_to_succeed(&self, told: usize) {
        self.expect_nothing_told_of_full_disk(told);
        let was_read_only = matches!(self.trouble, Some(Trouble::ReadOnly { .. }));
        let told = &self.told[told..];
        assert!(!was_read_only || told.is_empty(), "on a disk that can be read: {told:#?}");
    }

    /// A full disk keeps nobody from opening and reading.
    fn expect_nothing_told_of_full_disk(&self, told: usize) {
        let is_full = matches!(self.trouble, Some(Trouble::Full { .. }));
        assert!(!is_full || self.told.len() == told, "on a full disk: {:#?}", self.told);
    }

    /// A reopened database has all that was acknowledged.
    fn check_recovered(&mut self, state: Fingerprint) {
        let cut = std::mem::replace(&mut self.cut, PowerCut::KeepAll);
        for name in &self.made {
            let there = self.db().open_keyspace(name).map(drop);
            assert!(there.is_ok(), "{name} is gone: {there:?} after {:#?}", self.told);
        }
        let promised = self.history.promised();
        // Behind what was synced a damaged log ends where the damage is, if it is there when recovery looks again. No other damage takes anything away.
        let stays = self.trouble.is_some_and(|trouble| !trouble.is_once());
        let (log, manifests) = self.damaged_reads();
        let is_damaged = stays && log > self.damaged_before.0;
        let is_stale = stays && self.trouble.is_some_and(Trouble::is_staleness);
        let mut needed = match is_damaged {
            // Where the log is what it was before, it does not say what was synced since either.
            true if is_stale => promised.needed_of_files(),
            _ => promised.needed(cut == PowerCut::KeepAll && !is_damaged),
        };
        if is_stale && manifests > self.damaged_before.1 {
            // Nor does a manifest, and only the log could know better.
            needed.forget_unlogged();
        }
        let found = self.history.find(state, usize::MAX, needed);
        let found = found.unwrap_or_else(|p| panic!("{p}; {:#?}", self.told));
        // From here on the history is what was found.
        let all = ([self.history.commits(); PARTS], self.history.written_now());
        if (found, state.written) != all {
            let records = self.persevere("read", |run| run.read_records());
            self.history = History::from(self.setting, &records, state.written);
        }
        self.acknowledged = state.written;
        // Recovery makes what it shows safe before it shows it.
        self.promise_all();
        self.unsure = false;
    }

    /// All that there is, but of writers.
    fn read_records(&self) -> Result<Vec<Change>> {
        let mut all = self.records_of(&self.db().snapshot())?;
        all.retain(|(_, key, _)| !history::is_written(key));
        Ok(all)
    }

    /// All that a snapshot shows, in order.
    fn records_of(&self, snapshot: &Snapshot) -> Result<Vec<Change>> {
        let mut all = Vec::new();
        for (name, ..) in history::KEYSPACES {
            let Ok(keyspace) = self.db().open_keyspace(name) else { continue };
            for entry in snapshot.iter(&keyspace) {
                let (key, value) = entry?;
                all.push((name, key.to_vec(), Some(value.to_vec())));
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    fn promise_all(&mut self) {
        let (commits, written) = (self.history.commits(), self.history.written_now());
        self.history.promise(0, |promise| {
            promise.all(commits);
            (promise.written_synced, promise.written_handed_over) = (written, written);
        });
    }

    /// What the open handle shows is what was acknowledged, with or without the commits that failed.
    fn check_handle(&mut self, before: &Fingerprint) {
        let state = self.read();
        let expected = self.history.model.fingerprint;
        let is = |expected: &Fingerprint| state == expected.with_written(state.written);
        let is_right = is(&expected) || (self.unsure && is(before));
        assert!(is_right, "the handle shows something else: {:#?}", self.told);
        let (least, most) = (self.acknowledged, self.history.written_now());
        let is_right = (0..WRITERS).all(|at| (least[at]..=most[at]).contains(&state.written[at]));
        let written = state.written;
        assert!(is_right, "{written:?} of {least:?} to {most:?} written: {:#?}", self.told);
    }

    fn commit(&mut self, changes: &[Change], durability: Durability) {
        self.write(changes, durability, |db| history::commit(db, changes, durability));
    }

    /// Makes `changes` by a call that succeeds, leaves everything as it is, or poisons the database.
    fn write(
        &mut self,
        changes: &[Change],
        durability: Durability,
        write: impl Fn(&Database) -> Result<()>,
    ) {
        let before = self.history.model.clone();
        self.history.begin(0, changes);
        match write(self.db()) {
            Ok(()) => {
                let commits = self.history.commits();
                self.history.promise(0, |promise| match durability {
                    Durability::Buffered => {}
                    Durability::Os => promise.handed_over = commits,
                    Durability::Sync => {
                        (promise.handed_over, promise.synced) = (commits, commits);
                    }
                });
            }
            // Nothing was written, and the handle goes on: for want of space, or because a segment of the log could not be made.
            Err(error) if !self.db().status().is_poisoned => {
                self.tell("commit", &error);
                self.history.withdraw(before.clone());
                self.check_handle(&before.fingerprint);
                self.crash_after_failure();
            }
            Err(error) => {
                self.tell("commit", &error);
                self.unsure = true;
                self.check_handle(&before.fingerprint);
                self.expect_poisoned();
                if !self.crash_after_failure() {
                    self.drop_and_open();
                }
            }
        }
    }

    /// So many commits of each writer, at the same time. Each ends with the first of its commits that fails.
    fn together(&mut self, count: usize) {
        if !WRITTEN.iter().all(|name| self.made.contains(name)) {
            return;
        }
        let already = self.acknowledged;
        let works = (0..WRITERS).map(|writer| {
            let (db, order) = (self.db().clone(), Arc::clone(&self.order));
            let mut dice = Dice::new(self.dice.roll(1 << 32) as u64);
            Box::new(move || {
                let mut writes = Vec::new();
                let note = |write| (order.fetch_add(1, SeqCst), writer, write);
                for number in already[writer]..already[writer] + count {
                    let all = [Durability::Os, Durability::Sync, Durability::Buffered];
                    let durability = all[dice.roll(all.len())];
                    let changes = WRITTEN.map(|name| history::written(name, writer, number));
                    writes.push(note(Write::Begin));
                    if let Err(error) = history::commit(&db, &changes, durability) {
                        return (writes, Some(error));
                    }
                    writes.push(note(Write::Acknowledged(durability)));
                }
                (writes, None)
            }) as threads::Work<_>
        });
        let works = works.collect();
        let (mut writes, mut errors) = (Vec::new(), Vec::new());
        for (of_writer, error) in threads::together(works, true) {
            writes.extend(of_writer);
            errors.extend(error);
        }
        for (_, writer, write) in &writes {
            self.acknowledged[*writer] += usize::from(matches!(write, Write::Acknowledged(_)));
        }
        self.history.wrote(writes);
        errors.iter().for_each(|error| self.tell("commit of a writer", error));
        let is_poisoned = self.db().status().is_poisoned;
        if !is_poisoned {
            // None of those that failed was written.
            self.history.withdraw_written(self.acknowledged);
        }
        let state = self.history.model.fingerprint;
        self.check_handle(&state);
        if is_poisoned {
            self.expect_poisoned();
        }
        let is_crashed = !errors.is_empty() && self.crash_after_failure();
        if is_poisoned && !is_crashed {
            self.drop_and_open();
        }
    }

    /// A sorted load, which leaves all or nothing; where it fails the database may go on.
    fn load(&mut self, name: &'static str) {
        let engine = history::engine_of(name, self.setting.engines);
        if !matches!(engine, EngineKind::Lsm | EngineKind::Skip) {
            return;
        }
        let records = (0..12).filter(|number| number % 3 > 0);
        let changes = records.map(|number| {
            let key = history::key_in(name, &format!("key {number:02}"));
            (name, key, Some(self.dice.bytes(100)))
        });
        let mut changes: Vec<Change> = changes.collect();
        changes.sort();
        let before = self.history.model.clone();
        self.history.begin(0, &changes);
        match history::load(self.db(), name, &changes) {
            Ok(()) => self.history.promise_persisted(0, name),
            Err(error) => {
                self.tell("load", &error);
                self.unsure = true;
                self.check_handle(&before.fingerprint);
                if self.db().status().is_poisoned {
                    if !self.crash_after_failure() {
                        self.drop_and_open();
                    }
                    return;
                }
                self.unsure = false;
                let state = self.read();
                if state == before.fingerprint.with_written(state.written) {
                    self.history.withdraw(before);
                }
                self.crash_after_failure();
            }
        }
    }

    fn clear(&mut self, name: &'static str) {
        let changes = self.history.model.deletion_of_each(name);
        if history::engine_of(name, self.setting.engines) == EngineKind::Hash || changes.is_empty()
        {
            return;
        }
        self.write(&changes, Durability::Os, |db| {
            db.open_keyspace(name)?.clear_with(Durability::Os)
        });
    }

    fn expect_poisoned(&self) {
        let put = self.db().open_keyspace("alpha").and_then(|alpha| alpha.put("x", "y"));
        let error = put.expect_err("a put after a failed commit");
        let kinds = [ErrorKind::Poisoned, ErrorKind::UnknownKeyspace];
        assert!(kinds.contains(&error.kind()), "{error:?} after {:#?}", self.told);
    }

    fn drop_and_open(&mut self) {
        self.held = None;
        if let Err(error) = self.db.take().expect("it is open").close() {
            self.tell("close", &error);
        }
        self.open();
    }

    /// Runs a call that is no write. If it fails it is tried again, after reopening if writes are refused.
    fn call(&mut self, what: Step, call: impl Fn(&Database) -> Result<()>) {
        self.persevere(&format!("{what:?}"), |run| {
            let done = call(run.db());
            if done.is_err() {
                let state = run.history.model.fingerprint;
                run.check_handle(&state);
                if run.crash_after_failure() {
                    return done;
                }
                let probe = run.db().persist();
                if probe.is_err_and(|error| error.kind() == ErrorKind::Poisoned) {
                    run.drop_and_open();
                }
            }
            done
        });
    }

    fn changes(&mut self) -> Vec<Change> {
        let names: Vec<_> = history::KEYSPACES.iter().map(|&(name, ..)| name).collect();
        let is_known = |name: &&str| self.db().open_keyspace(name).is_ok();
        let known: Vec<_> = names.into_iter().filter(is_known).collect();
        let mut changes = Vec::new();
        for _ in 0..3 {
            let keyspace = known[self.dice.roll(known.len())];
            let engine = history::engine_of(keyspace, self.setting.engines);
            if engine == EngineKind::Lsm && self.dice.roll(6) == 0 {
                changes.push(history::deletion_of_all(keyspace, "key 1"));
                continue;
            }
            let key = history::key_in(keyspace, &format!("key {}", self.dice.roll(12)));
            let value = (self.dice.roll(4) > 0).then(|| self.dice.bytes(100));
            changes.push((keyspace, key, value));
        }
        // A logged one is always among them, so that every commit leaves a trace in the log.
        changes.push(("alpha", b"count".to_vec(), Some(self.dice.bytes(8))));
        changes
    }

    fn create(&mut self, step: Step, name: &'static str, opening: u64) {
        let setting = self.setting;
        self.creating = Some(name);
        self.call(step, |db| history::create_in(db, name, setting, opening, setting.layer));
        self.creating = None;
        if !self.made.contains(&name) {
            self.made.push(name);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create(name) => self.create(step, name, 0),
            Step::Choose(name) => self.create(step, name, 1),
            Step::Commit(count) => {
                for number in 0..count {
                    let changes = self.changes();
                    let all = [Durability::Os, Durability::Sync, Durability::Buffered];
                    self.commit(&changes, all[number % all.len()]);
                }
            }
            Step::FlushLog => {
                self.call(step, Database::flush_log);
                let (commits, written) = (self.history.commits(), self.history.written_now());
                self.history.promise(0, |promise| {
                    (promise.handed_over, promise.written_handed_over) = (commits, written);
                });
            }
            Step::Together(count) => self.together(count),
            Step::Load(name) => self.load(name),
            Step::Clear(name) => self.clear(name),
            Step::Large(bytes) => {
                let value = self.dice.bytes(bytes);
                self.commit(&[("alpha", b"large".to_vec(), Some(value))], Durability::Os);
            }
            Step::PersistKeyspace(name) => {
                self.call(step, |db| db.open_keyspace(name)?.persist());
                self.history.promise_persisted(0, name);
            }
            Step::Persist => {
                self.call(step, Database::persist);
                self.promise_all();
                self.history.promise_files(0);
            }
            Step::Compact(name) => self.call(step, |db| db.open_keyspace(name)?.compact()),
            Step::Hold => {
                let snapshot = self.db().snapshot();
                let records = self.read_held(&snapshot);
                self.held = Some(Held { snapshot, records });
            }
            Step::Look => {
                let Some(Held { snapshot, records }) = self.held.take() else { return };
                let now = self.read_held(&snapshot);
                assert!(now == records, "a snapshot has changed after {:#?}", self.told);
                self.held = Some(Held { snapshot, records });
            }
            Step::Verify => {
                let verify = |db: &Database| match db.verify()?.problems.pop() {
                    Some(problem) => Err(problem),
                    None => Ok(()),
                };
                self.call(step, verify);
            }
            Step::Reopen => {
                self.held = None;
                let closed = self.db.take().expect("it is open").close();
                match closed {
                    Ok(()) => self.promise_all(),
                    Err(error) => {
                        self.tell("close", &error);
                        if self.crash_after_failure() {
                            return;
                        }
                    }
                }
                let told = self.told.len();
                // Once, so that the disk is still as it is when others open.
                let seen = self.look();
                if let Err(error) = &seen {
                    self.tell("open for reading only", error);
                }
                self.expect_nothing_told_of_full_disk(told);
                self.open();
                let state = self.read();
                // Behind what was synced a log ends where it is damaged, if it is so whenever it is looked at.
                let is_damage = |trouble: Trouble| trouble.is_damage() && !trouble.is_once();
                let is_same =
                    self.trouble.is_some_and(is_damage) || seen.map_or(true, |seen| seen == state);
                assert!(is_same, "who only reads sees another state: {:#?}", self.told);
            }
            Step::Kill => self.crash(PowerCut::KeepAll),
            Step::CutPower => {
                let cut = self.power_cut();
                // Where the word that the last record was synced is lost, damage to that cannot be told from what a power cut leaves.
                let is_damage = self.trouble.is_some_and(Trouble::is_damage);
                self.crash(if is_damage { PowerCut::KeepAll } else { cut });
            }
        }
    }

    fn run(&mut self) {
        self.trouble_before(0);
        self.open();
        for (index, &step) in WORKLOAD.iter().enumerate() {
            self.trouble_before(index + 1);
            let is_made = |name| self.db().open_keyspace(name).is_ok();
            let is_done = index == 0 || self.steps.has(index);
            if is_done && step.keyspace().is_none_or(is_made) {
                self.step(step);
            }
        }
    }

    /// The end: without faults everything is there, after a kill and after a power loss.
    fn finish(mut self) {
        let promised = self.history.promised();
        let at = self.memory.operations();
        drop(self.db.take());
        self.repair();
        for cut in [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::Random(at as u64)] {
            let image = self.memory.image(at, cut);
            let db = self.check_image(&image, cut, &promised, None);
            let leftovers = history::leftovers(&db, || history::files(&image));
            assert!(matches!(leftovers, Ok(None)), "{cut:?}: {leftovers:?} after {:#?}", self.told);
        }
    }

    /// What is left after that opens, has what was promised, and the keyspaces that were made, perhaps another one, and is whole.
    fn check_image(
        &self,
        image: &MemoryFs,
        cut: PowerCut,
        promised: &Promise,
        maybe: Option<&str>,
    ) -> Database {
        let fail = |problem: &dyn fmt::Debug| -> ! {
            panic!("{cut:?}: {problem:?} after {:#?}", self.told)
        };
        let builder = history::builder(Arc::new(image.clone())).log_layer(self.setting.layer);
        let db = builder.open().unwrap_or_else(|error| fail(&error));
        let state = Fingerprint::of(&db).unwrap_or_else(|error| fail(&error));
        let is_kill = [cut, self.cut] == [PowerCut::KeepAll; 2];
        self.history
            .find(state, usize::MAX, promised.needed(is_kill))
            .unwrap_or_else(|problem| fail(&problem));
        for (name, ..) in history::KEYSPACES {
            let is_there = db.open_keyspace(name).is_ok();
            let is_right = is_there == self.made.contains(&name) || maybe == Some(name);
            assert!(is_right, "{cut:?}: keyspace {name}: {is_there} after {:#?}", self.told);
        }
        let problems = db.verify().map(|report| report.problems);
        let is_sound = problems.as_ref().is_ok_and(Vec::is_empty);
        assert!(is_sound, "{cut:?}: {problems:?} after {:#?}", self.told);
        db
    }
}

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// One case in so many, which is not 0; the seed says which.
    pub every: usize,
}

/// How many calls of each kind the workload makes when all is well.
fn calls(setting: Setting, steps: Steps) -> std::result::Result<[(Operation, u64); 13], Report> {
    let plain = || {
        simulated(setting.seed, || {
            let mut run = Run::new(setting, steps, None);
            run.run();
            assert!(run.told.is_empty(), "without any fault: {:#?}", run.told);
            let calls = Operation::ALL.map(|operation| (operation, run.faulty.calls(operation)));
            run.finish();
            calls
        })
    };
    let name = format!("faults/{setting}{}", steps.suffix());
    panics::caught(|| watched(name.clone(), plain))
        .map_err(|panic| Report::of_violation(name, format!("the workload itself {panic}")))
}

/// Runs the workload of a setting once, and nothing goes wrong.
pub fn run_without(setting: Setting) -> Report {
    match calls(setting, Steps::ALL) {
        Ok(calls) => {
            let operations = calls.iter().map(|(_, calls)| calls).sum();
            Report { cases: 1, operations, ..Report::default() }
        }
        Err(report) => report,
    }
}

/// The ways in which a call can go wrong: all errnos, and of what can be done in part or wrongly one of each kind.
fn effects(operation: Operation, layer: Layer, seed: u64) -> Vec<Effect> {
    let mut dice = Dice::new(seed);
    let mut effects: Vec<_> =
        ERRNOS.iter().map(|&(number, _)| Effect::Fail(Errno::Raw(number))).collect();
    effects.push(Effect::FailDone(Errno::Raw(IN_PART[dice.roll(IN_PART.len())])));
    if matches!(operation, Operation::Read | Operation::Write) {
        let short = SHORT[dice.roll(SHORT.len())];
        effects.extend(IN_PART.map(|number| Effect::FailShort(short, Errno::Raw(number))));
    }
    // Layers that write whole blocks read what is beside a write, which has no checksum there, and would write damage back. What maps
    // show is the file itself, not what a call gives.
    if operation == Operation::Read && layer == Layer::Positional {
        let flip = Effect::Flip(dice.roll(1 << 16) as u64);
        let misplaced = Effect::Misplace(MISPLACED[dice.roll(MISPLACED.len())]);
        // As often within 64 bytes as within 64 KiB.
        let bits = 9 + dice.roll(11);
        let near = dice.roll(1 << bits) as u64;
        effects.extend([flip, Effect::FlipBack(near), misplaced, Effect::Stale]);
    }
    effects
}

/// What can go wrong between calls, or with all of them.
fn large_troubles() -> Vec<Trouble> {
    let steps = || 0..=WORKLOAD.len();
    let dead = steps().map(|step| Trouble::Dead { step });
    let read_only = steps().map(|step| Trouble::ReadOnly { step });
    let open_files =
        steps().flat_map(|step| MORE_FILES.map(|room| Trouble::OpenFiles { step, room }));
    let full = steps().flat_map(|step| ROOMS.map(|room| Trouble::Full { step, room }));
    let calls = [10, 30, 100, 300, 1000].into_iter().cycle();
    let calls = || calls.clone().zip(0..STORMS);
    let storms = calls().map(|(calls, seed)| Trouble::Storm { calls, seed });
    let slow = calls().map(|(calls, seed)| Trouble::Slow { calls, seed });
    dead.chain(read_only).chain(open_files).chain(full).chain(storms).chain(slow).collect()
}

/// Whatever single call can go wrong in the workload of a setting.
fn small_troubles(setting: Setting, calls: &[(Operation, u64)]) -> Vec<Trouble> {
    let mut all = Vec::new();
    for &(operation, count) in calls {
        for after in 0..count {
            if operation == Operation::Sync {
                all.extend(LOST.map(|errno| Trouble::LostSync { after, errno }));
            }
            if operation == Operation::SyncDir {
                all.extend(LOST.map(|errno| Trouble::LostNames { after, errno }));
            }
            for effect in effects(operation, setting.layer, mix(setting.seed, (operation, after))) {
                let files = Files::ANY;
                let call = |often| Trouble::Call { operation, after, often, effect, files };
                all.extend([Often::Once, Often::Always].map(call));
            }
        }
        // Those that are about directories, or the one file that is locked.
        if matches!(operation, Operation::SyncDir | Operation::List | Operation::Lock) {
            continue;
        }
        for (files, after) in
            Files::KINDS.into_iter().flat_map(|files| CALLS_OF_FILES.map(|after| (files, after)))
        {
            let seed = mix(setting.seed, (operation, files.0, after));
            let effects = effects(operation, setting.layer, seed).into_iter();
            let often = Often::Always;
            all.extend(effects.map(|effect| Trouble::Call {
                operation,
                after,
                often,
                effect,
                files,
            }));
        }
    }
    all.extend(
        calls.iter().flat_map(|&(operation, count)| crashes(operation, count, setting.seed)),
    );
    if setting.layer == Layer::Positional {
        all.extend(wrong_looks(setting.seed));
    }
    all
}

/// Calls that change something, and are said to have failed though they have done it, or a part of it: until a crash nothing is as it is said to be.
fn crashes(operation: Operation, count: u64, seed: u64) -> impl Iterator<Item = Trouble> {
    use Operation::{Allocate, Create, Remove, Rename, Sync, SyncDir, Truncate, Write};
    let changes = matches!(
        operation,
        Allocate | Create | Remove | Rename | Sync | SyncDir | Truncate | Write
    );
    // Files of edits are few beside all others, and no space is reserved for them.
    let of_edits = !matches!(operation, Allocate | SyncDir | Truncate);
    let most = move |files| match files {
        Files::ANY => count,
        _ if !of_edits => 0,
        Files::MANIFEST => count.min(MANIFEST_CALLS),
        _ => count.min(CATALOG_CALLS),
    };
    let each = [Files::ANY, Files::MANIFEST, Files::CATALOG].into_iter().filter(move |_| changes);
    let calls = each.flat_map(move |files| (0..most(files)).map(move |after| (files, after)));
    calls.flat_map(move |(files, after)| {
        let mut dice = Dice::new(mix(seed, ("crash", operation, files.0, after)));
        let mut effects = vec![Effect::FailDone(Errno::Raw(28))];
        if files == Files::ANY {
            effects.push(Effect::FailDone(Errno::Raw(5)));
        }
        if operation == Write {
            effects.push(Effect::FailShort(SHORT[dice.roll(SHORT.len())], Errno::Raw(28)));
        }
        let often = Often::UntilCrash;
        effects.into_iter().map(move |effect| Trouble::Call {
            operation,
            after,
            often,
            effect,
            files,
        })
    })
}

/// Single reads of an opening that show a log with another end than it has. The openings of a step, of which one may be for reading only, read up to so many times.
fn wrong_looks(seed: u64) -> impl Iterator<Item = Trouble> {
    let numbered = WORKLOAD.iter().enumerate();
    let steps = numbered.filter(|(_, step)| step.opens()).map(|(index, _)| index + 1);
    let each = |(files, reads): (Files, u64)| (0..reads).map(move |after| (files, after));
    let reads = [(Files::LOG, 16), (Files::CATALOG, 4), (Files::MANIFEST, 36)];
    let looks =
        steps.flat_map(move |step| reads.into_iter().flat_map(each).map(move |it| (step, it)));
    looks.flat_map(move |(step, (files, after))| {
        let mut dice = Dice::new(mix(seed, (step, after, files.0)));
        let effects = match files {
            // In the last record, and in the last ones.
            Files::LOG => {
                [9, 13].map(|bits| Effect::FlipBack(dice.roll(1 << bits) as u64)).to_vec()
            }
            // Which end a file of edits has it says at its front.
            _ => vec![Effect::Stale],
        };
        effects.into_iter().map(move |effect| Trouble::Look { step, after, effect, files })
    })
}

/// So many kinds of troubles are drawn apart.
const KINDS: usize = 19;

/// What a trouble is drawn as, by a number below [`KINDS`]; 0 is an error of a call that has done nothing.
fn kind_number(trouble: Trouble) -> usize {
    match trouble {
        Trouble::Call { operation, often: Often::UntilCrash, .. } => match operation {
            Operation::Create | Operation::Remove | Operation::Rename | Operation::SyncDir => 17,
            _ => 18,
        },
        Trouble::Call { files, .. } if files != Files::ANY => 12,
        Trouble::Call { effect: Effect::FailDone(_), .. } => 1,
        Trouble::Call { effect: Effect::FailShort(..), .. } => 2,
        Trouble::Call { effect: Effect::Flip(_) | Effect::FlipBack(_), .. } => 3,
        Trouble::Call { effect: Effect::Misplace(_), .. } => 4,
        Trouble::Call { effect: Effect::Stale, .. } => 5,
        Trouble::Call { .. } => 0,
        Trouble::LostSync { .. } => 6,
        Trouble::Dead { .. } => 7,
        Trouble::Full { .. } => 8,
        Trouble::Storm { .. } => 9,
        Trouble::Slow { .. } => 10,
        Trouble::ReadOnly { .. } => 11,
        Trouble::OpenFiles { .. } => 13,
        Trouble::LostNames { .. } => 14,
        Trouble::Look { files: Files::LOG, .. } => 15,
        Trouble::Look { .. } => 16,
    }
}

/// All of them in an order that the seed decides. Most are errors of calls that have done nothing: one in four is, as long as there are others, of which each
/// kind has its turn as often as the next one. So it is among those that end with a crash with what they have done to which files: writes are many, and
/// renamings few; and among reads of openings, most of which are of manifests.
fn in_turn(troubles: &[Trouble], seed: u64) -> Vec<Trouble> {
    let mut alike = HashMap::new();
    let mut so_many = |kind| {
        let many: &mut usize = alike.entry(kind).or_default();
        *many += 1;
        *many
    };
    let mut shuffled: Vec<_> = dice::shuffled(troubles.len(), seed)
        .map(|at| match troubles[at] {
            Trouble::Call { operation, often: Often::UntilCrash, effect, files, .. } => {
                (so_many((operation, discriminant(&effect), files.0)), at)
            }
            Trouble::Look { effect, files, .. } => {
                (so_many((Operation::Read, discriminant(&effect), files.0)), at)
            }
            _ => (0, at),
        })
        .collect();
    shuffled.sort_by_key(|&(turn, _)| turn);
    let mut ranks = [0; KINDS];
    let mut ranked: Vec<_> = shuffled
        .into_iter()
        .map(|(_, at)| {
            let kind = kind_number(troubles[at]);
            ranks[kind] += 1;
            (ranks[kind], kind, troubles[at])
        })
        .collect();
    let others = ranks[1..].iter().filter(|&&count| count > 0).count();
    // Those of one rank in an order of their own, so that no kind is always the last one, which a short run does not come to.
    ranked.sort_by_key(|&(rank, kind, _)| {
        (rank * if kind == 0 { 3 } else { others }, mix(seed, (rank, kind)))
    });
    ranked.into_iter().map(|(.., trouble)| trouble).collect()
}

/// Runs the workload with what goes wrong.
fn attempt(id: CaseId) -> Report {
    let CaseId { setting, trouble, steps } = id;
    let work = || {
        simulated(setting.seed, || {
            let mut run = Run::new(setting, steps, Some(trouble));
            run.run();
            let fired = match trouble {
                Trouble::LostSync { .. } | Trouble::LostNames { .. } => {
                    run.lost_syncs + run.memory.lost_syncs()
                }
                // It shows in what was told, which may be more than one error.
                Trouble::Full { .. } | Trouble::ReadOnly { .. } => run.told.len().min(1) as u64,
                _ => run.faulty.fired(),
            };
            let calls: u64 = Operation::ALL.iter().map(|&kind| run.faulty.calls(kind)).sum();
            let is_without_crash = match trouble {
                Trouble::Call { often: Often::UntilCrash, .. } => fired > 0 && !run.is_crashed,
                _ => false,
            };
            run.finish();
            (fired, calls, is_without_crash)
        })
    };
    match panics::caught(|| watched(id, work)) {
        Ok((fired, operations, is_without_crash)) => {
            let mut report = Report { cases: 1, operations, ..Report::default() };
            report.fire(trouble.kind(), fired);
            report.count("without effect", u64::from(fired == 0));
            report.count("errors that nobody told of before a crash", u64::from(is_without_crash));
            report
        }
        Err(problem) => Report::of_violation(id, problem),
    }
}

/// Runs the workload of a setting again and again, each time with something else that goes wrong: every call of every kind with every
/// errno once and until the disk is repaired, those that change something until a crash, too, every sync lost, damaged reads, storms, slow disks. All of it with an effort of 1, for as long as it is to `go_on` with the case of this name,
/// on as many threads as there are processors. Operations are calls to the file system.
pub fn run(
    setting: Setting,
    effort: Effort,
    go_on: impl Fn(&dyn fmt::Display) -> bool + Sync,
) -> Report {
    let steps = Steps::ALL;
    let calls = match calls(setting, steps) {
        Ok(calls) => calls,
        Err(report) => return report,
    };
    let (large, small) = (large_troubles(), small_troubles(setting, &calls));
    let chosen = |troubles: &[Trouble], every: usize| {
        let mut order = in_turn(troubles, setting.seed);
        order.truncate(troubles.len().div_ceil(every));
        order
    };
    // There are few of the large ones: more of them are tried.
    let large = chosen(&large, effort.every.div_ceil(10));
    let troubles = [large, chosen(&small, effort.every)].concat();
    let troubles = in_turn(&troubles, setting.seed);
    let cases = troubles.into_iter().map(|trouble| CaseId { setting, trouble, steps });
    let mut report = workers::sum(cases, |case| go_on(case), attempt);
    report.count("calls of the workload", calls.iter().map(|(_, calls)| calls).sum());
    report
}

/// Looks for a shorter workload that fails like the one of this violation of [`run`], for about so long: with a call of the same kind that meets the same,
/// or the same trouble before the same step. Says which steps are left. `None` if there is none.
#[must_use]
pub fn shorten(violation: &Violation, time: Duration) -> Option<Violation> {
    let id: CaseId = violation.case.parse().ok()?;
    let until = Instant::now() + time;
    let failing = |steps| first_like(CaseId { steps, ..id }, until);
    let (steps, violation) = steps::shorten(1..WORKLOAD.len(), until, failing)?;
    let problem = format!("{}; {:?}", violation.problem, steps.of(WORKLOAD));
    Some(Violation { problem, ..violation })
}

/// The first case of a workload that is found to fail, of those in which the same goes wrong with any call of the kind.
fn first_like(like: CaseId, until: Instant) -> Option<Violation> {
    let counts = match calls(like.setting, like.steps) {
        Ok(counts) => counts,
        Err(report) => return report.violations.into_iter().next(),
    };
    let all = |operation| {
        let of_kind = counts.into_iter().filter(move |&(kind, _)| kind == operation);
        of_kind.flat_map(|(_, count)| 0..count)
    };
    let troubles: Vec<_> = match like.trouble {
        Trouble::Call { operation, often, effect, files, .. } => {
            let call = |after| Trouble::Call { operation, after, often, effect, files };
            match files {
                Files::ANY => all(operation).map(call).collect(),
                _ if often == Often::UntilCrash => (0..MANIFEST_CALLS).map(call).collect(),
                _ => CALLS_OF_FILES.into_iter().map(call).collect(),
            }
        }
        Trouble::LostSync { errno, .. } => {
            all(Operation::Sync).map(|after| Trouble::LostSync { after, errno }).collect()
        }
        Trouble::LostNames { errno, .. } => {
            all(Operation::SyncDir).map(|after| Trouble::LostNames { after, errno }).collect()
        }
        trouble => vec![trouble],
    };
    let cases = troubles.into_iter().map(|trouble| CaseId { trouble, ..like });
    workers::first_failing(cases, until, attempt)
}

/// Tries one case again. With the feature `simulation` the order of threads is the same.
///
/// # Errors
/// If there is no such case: the workload has no such step, or makes fewer calls.
pub fn replay(id: CaseId) -> std::result::Result<Report, Unknown> {
    let steps = WORKLOAD.len();
    let nowhere = |what: String| Err(Unknown::new("case", &id.to_string(), what));
    let at_call = |operation, after| match calls(id.setting, id.steps) {
        Ok(calls) => match calls.into_iter().find(|&(known, _)| known == operation) {
            Some((_, count)) if after >= count => {
                nowhere(format!("the workload has {count} calls of {operation}"))
            }
            _ => Ok(attempt(id)),
        },
        Err(report) => Ok(report),
    };
    match id.trouble {
        Trouble::Dead { step }
        | Trouble::ReadOnly { step }
        | Trouble::Look { step, .. }
        | Trouble::OpenFiles { step, .. }
        | Trouble::Full { step, .. }
            if step > steps =>
        {
            nowhere(format!("the workload has {steps} steps"))
        }
        Trouble::Storm { calls: 0, .. } | Trouble::Slow { calls: 0, .. } => {
            nowhere("one in no calls is none".into())
        }
        Trouble::Call { operation, after, .. } => at_call(operation, after),
        Trouble::LostSync { after, .. } => at_call(Operation::Sync, after),
        Trouble::LostNames { after, .. } => at_call(Operation::SyncDir, after),
        _ => Ok(attempt(id)),
    }
}

#[cfg(test)]
mod tests {
    use turbidite::vfs::{Access, Fs};

    use super::*;

    #[test]
    fn the_name_of_a_case_is_read_again() {
        let setting = Setting::new(7, Layer::Positional);
        let small = small_troubles(setting, &Operation::ALL.map(|operation| (operation, 2)));
        for trouble in large_troubles().into_iter().chain(small) {
            for steps in ["all", "f00d"].map(|steps| steps.parse().unwrap()) {
                let id = CaseId { setting, trouble, steps };
                assert_eq!(id.to_string().parse::<CaseId>().unwrap(), id);
            }
        }
        for text in [
            "",
            "faults/7/all/mmap",
            "faults/7/all/mmap/write:1:twice:EIO",
            "faults/7/all/mmap/write:1:once:EIO:",
            "faults/7/all/mmap/write:1:once:EIO:.txt",
            "faults/7/all/mmap/write:1:once:EIO:.log:1",
        ] {
            let error = text.parse::<CaseId>().unwrap_err().to_string();
            assert!(error.contains("faults/7/all/mmap/write:120:once:EIO"), "{error}");
        }
    }

    #[test]
    fn every_trouble_has_its_turn() {
        let calls = Operation::ALL.map(|operation| (operation, 20));
        let setting = Setting::new(7, Layer::Positional);
        let all = [large_troubles(), small_troubles(setting, &calls)].concat();
        let order = in_turn(&all, 1);
        let names = |troubles: &[Trouble]| {
            let names = troubles.iter().map(|trouble| trouble.to_string());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!((order.len(), names(&order)), (all.len(), names(&all)));
        let mut counts = [0; KINDS];
        order[..200].iter().for_each(|&trouble| counts[kind_number(trouble)] += 1);
        assert!((45..=55).contains(&counts[0]), "{counts:?}");
        assert!(counts[1..].iter().all(|count| (8..=9).contains(count)), "{counts:?}");
        assert_ne!(order, in_turn(&all, 2));
        // Behind five errors of calls that have done nothing.
        let sixth = |seed| kind_number(in_turn(&all, seed)[5]);
        let first: std::collections::BTreeSet<_> = (0..200).map(sixth).collect();
        assert_eq!(first.len(), KINDS, "{first:?}");
    }

    #[test]
    fn something_that_is_lost_is_a_violation() {
        let setting = Setting::new(7, Layer::Positional);
        let lost = || {
            let mut run = Run::new(setting, Steps::ALL, None);
            run.run();
            // Nobody wrote that.
            run.history.begin(0, &[("alpha", b"key".to_vec(), Some(b"not there".to_vec()))]);
            run.promise_all();
            run.finish();
        };
        let problem = panics::caught(lost).unwrap_err();
        assert!(problem.contains("commits"), "{problem}");
    }

    #[test]
    fn what_a_crash_loses_is_a_violation() {
        for (cut, durability, is_lost) in [
            (PowerCut::KeepAll, Durability::Os, false),
            (PowerCut::DropUnsynced, Durability::Os, false),
            (PowerCut::KeepAll, Durability::Buffered, false),
            (PowerCut::KeepAll, Durability::Buffered, true),
        ] {
            let setting = Setting::new(7, Layer::Positional);
            let crash = || {
                let mut run = Run::new(setting, Steps::ALL, None);
                run.open();
                run.step(Step::Create("alpha"));
                let changes = [("alpha", b"key".to_vec(), Some(vec![1; 100]))];
                run.commit(&changes, durability);
                if is_lost {
                    run.promise_all();
                }
                run.crash(cut);
                let found = run.db().open_keyspace("alpha").unwrap().get("key").unwrap();
                assert_eq!(
                    found.is_some(),
                    (cut, durability) == (PowerCut::KeepAll, Durability::Os)
                );
            };
            let ended = panics::caught(crash);
            assert_eq!(ended.is_err(), is_lost, "{ended:?}");
            let told = ended.err().unwrap_or_default();
            assert!(!is_lost || told.contains("commits are left"), "{told}");
        }
    }

    #[test]
    fn faults_go_on_after_a_crash() {
        let setting = Setting::new(7, Layer::Positional);
        let eio = Effect::Fail(Errno::Raw(5));
        for trouble in [
            Trouble::Call {
                operation: Operation::Sync,
                after: 0,
                often: Often::Always,
                effect: eio,
                files: Files::ANY,
            },
            Trouble::LostSync { after: 0, errno: 5 },
            Trouble::LostNames { after: 0, errno: 5 },
            Trouble::Full { step: 0, room: 0 },
            Trouble::ReadOnly { step: 0 },
            Trouble::Dead { step: 0 },
        ] {
            let mut run = Run::new(setting, Steps::ALL, None);
            run.open();
            run.step(Step::Create("alpha"));
            run.step(Step::Commit(3));
            run.trouble = Some(trouble);
            // The first moment at which calls fail is in the recovery.
            run.trouble_before(0);
            run.crash(PowerCut::KeepAll);
            match trouble {
                Trouble::Full { .. } => assert!(run.quota.is_some()),
                _ => assert!(!run.told.is_empty(), "{trouble:?}"),
            }
            run.finish();
        }
    }

    #[test]
    fn a_dead_disk_stays_dead_and_one_that_can_be_read_is_read() {
        for (trouble, is_read) in
            [(Trouble::Dead { step: 0 }, false), (Trouble::ReadOnly { step: 0 }, true)]
        {
            let mut run = Run::new(Setting::new(7, Layer::Positional), Steps::ALL, None);
            run.open();
            run.step(Step::Create("alpha"));
            run.step(Step::Commit(3));
            let path = Path::new(history::PATH).join("lock");
            let open = |run: &Run, access| {
                run.faulty.open(&path, access, Layer::Positional).map(drop).is_ok()
            };
            run.trouble = Some(trouble);
            run.trouble_before(0);
            for _ in 0..3 {
                assert!(run.faulty.create_dir(Path::new("/another")).is_err());
                assert!(run.faulty.sync_dir(Path::new("/")).is_err());
                assert_eq!(run.faulty.kind(&path).is_ok(), is_read);
                let can = [Access::Read, Access::Write].map(|access| open(&run, access));
                assert_eq!(can, [is_read, false]);
            }
            // Those who only read can do so until all can be done again.
            run.drop_and_open();
            assert_eq!(run.told.iter().filter(|told| told.starts_with("open")).count(), ATTEMPTS);
            assert!(open(&run, Access::Write));
            run.finish();
        }
    }

    #[test]
    fn want_of_space_poisons_where_a_promised_write_cannot_be_done_only() {
        let blocks = Layer::Direct { block_size: 4096 };
        let may_poison = |operation, files, layer| {
            let effect = Effect::Fail(Errno::Raw(28));
            let often = Often::Once;
            let trouble = Trouble::Call { operation, after: 0, often, effect, files };
            trouble.may_be_told_as(ErrorKind::Poisoned, layer)
        };
        let log = Files::named(".log").unwrap();
        let table = Files::named(".table").unwrap();
        for files in [Files::ANY, log] {
            assert!(may_poison(Operation::Write, files, Layer::Positional));
            // Beside what is written.
            assert!(may_poison(Operation::Read, files, blocks));
            assert!(!may_poison(Operation::Read, files, Layer::Positional));
        }
        for operation in [Operation::Read, Operation::Write] {
            assert!(!may_poison(operation, table, blocks));
        }
        for operation in [Operation::Open, Operation::Create, Operation::Allocate] {
            assert!(!may_poison(operation, Files::ANY, blocks));
        }
        assert!(may_poison(Operation::Sync, table, blocks));
    }

    /// Those of bugs that are mended.
    #[test]
    fn cases_that_have_lost_something() {
        for id in [
            // Recovery read wrongly what it wrote again.
            "faults/11/all/pos/read:1:always:misplaced-65536/steps:2340000000000e019",
            // A keyspace was made again under a name that no sync wrote any more.
            "faults/1/all/pos/lost-names:12:EIO",
        ] {
            let report = replay(id.parse().unwrap()).unwrap();
            assert!(report.violations.is_empty(), "{:?}", report.violations);
            // Else the workload has changed, and that is another case, or none.
            assert!(report.faults_fired() > 0, "{id} meets nothing");
        }
    }

    /// The same, of calls whose numbers change with the workload: each call of the kind about such files.
    #[test]
    fn calls_that_have_lost_something() {
        for (before, behind) in [
            // A manifest that could not be opened under its new name: open:129:once:EIO-done then.
            ("faults/50004/all/pos/open:", ":once:EIO-done:manifest-"),
            // A mark for which there was said to be no space, and was: write:319:once:ENOSPC-done then.
            ("faults/23553695927511/all/pos-direct/write:", ":once:ENOSPC-done:.log"),
        ] {
            let is_met = |after: &u64| {
                let id = format!("{before}{after}{behind}").parse().unwrap();
                let report = attempt(id);
                assert!(report.violations.is_empty(), "{:?}", report.violations);
                report.faults_fired() > 0
            };
            let met = (0..).take_while(is_met).count();
            assert!(met > 20, "{before}...{behind} meets {met} calls");
        }
    }

    #[test]
    fn a_shorter_workload_can_be_run_too() {
        let setting = Setting::new(7, Layer::Positional);
        let trouble = |operation| Trouble::Call {
            operation,
            after: 0,
            often: Often::Once,
            effect: Effect::Fail(Errno::Raw(5)),
            files: Files::ANY,
        };
        let until = Instant::now() + Duration::from_secs(600);
        for (steps, operation) in [("0", Operation::Sync), ("2aaaaaaaaaaab", Operation::Write)] {
            let (steps, trouble) = (steps.parse().unwrap(), trouble(operation));
            let found = first_like(CaseId { setting, trouble, steps }, until);
            assert!(found.is_none(), "{found:?}");
        }
        let fine = Violation { case: format!("faults/{setting}/full:3:0"), problem: String::new() };
        assert!(shorten(&fine, Duration::from_secs(2)).is_none());
    }
}
