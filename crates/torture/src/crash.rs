//! Power cuts and kills at every I/O boundary of a workload, and in the recoveries from them.
//!
//! The workload has a keyspace on each engine, with the log and without it, and does what programs do: commits of one and of several
//! writes, with every durability, flushes, compactions, closing and opening again with other options. Between any two of its calls to the file
//! system the power may have been cut. Of what was not synced then, nothing may be left, or all, or any one operation, or all but one, or
//! any part, with torn writes, and names in their order or in any. Wherever something has just been promised to survive that, what was synced is tried alone. Each image must open, to those who only read, too, with a state that there was, not older than was promised; what is written then must stay; and
//! [`verify`](turbidite::Database::verify) must find nothing. Of some images the recovery itself is cut off at each of its operations,
//! and some of what that leaves is used in turn.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::Hash;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use turbidite::vfs::{MemoryFs, PowerCut};
use turbidite::{Database, DatabaseBuilder, Durability, EngineKind, Error};

use crate::history::{
    self, Change, Fingerprint, History, LOGGED, Model, Needed, PARTS, WRITERS, WRITTEN, Write,
};
use crate::report::{Report, Violation};
use crate::setting::{Setting, Unknown};
use crate::steps::{self, Steps};
use crate::watch::watched;
use crate::{Dice, choices, dice, panics, simulated_in_peace, threads, workers};

/// So many of the single pending writes are kept alone, and dropped alone, at each boundary.
const SINGLES: usize = 5;
/// One image in so many is first opened for reading only.
const LOOKS: u64 = 8;
/// One image in so many is used much more, once it is recovered.
const USED_ON: u64 = 16;
/// One image in so many that cut off recoveries leave is written to and opened again, as all others are.
const USED: u64 = 8;
/// One image in so many is recovered with the recovery itself cut off at each operation; that of one that a kill has left always, when it is
/// at its end. Where each pending operation is kept alone and dropped alone, it is one
/// image at each boundary: there are hundreds, most of which differ by one operation.
const RECOVERY_CUTS: usize = 41;

/// A sorted load has so many records at most.
const LOADED: usize = 20;

/// The most random images at each boundary.
pub const MOST_RANDOMS: usize = 1000;

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// The power is cut at one boundary in so many, which is not 0, and at both ends; the seed says at which of them. With 1, each
    /// pending operation is kept alone and dropped alone; otherwise some of them are. At all others where something has just been promised to
    /// survive power loss, there is one image, of what was synced.
    pub step: usize,
    /// The first boundary but for the two ends, as where an earlier run has ended.
    pub from: usize,
    /// How many random images there are at each boundary, at most [`MOST_RANDOMS`].
    pub randoms: usize,
    /// How many of all images are made at most at each boundary: the seed says which.
    pub images: usize,
    /// In how many passes over the workload, which are not 0: with many even a run that is cut short has been all over it, with one it is known up to where.
    pub passes: usize,
}

impl Effort {
    /// All images at one boundary in `step`, with two random ones, in one pass.
    #[must_use]
    pub const fn one_in(step: usize) -> Self {
        Self { step, from: 0, randoms: 2, images: usize::MAX, passes: 1 }
    }

    /// The boundaries of so many operations at which the power is cut, in order.
    fn boundaries(self, seed: u64, operations: usize) -> impl Iterator<Item = usize> {
        let first = (seed % self.step as u64) as usize;
        let inner = self.from.max(1)..operations;
        let between = (first..operations).step_by(self.step).filter(move |at| inner.contains(at));
        std::iter::once(0).chain(between).chain([operations])
    }

    /// What is in order, in passes over all of it.
    fn in_passes<T: Copy>(self, all: &[T]) -> impl Iterator<Item = T> {
        assert_ne!(self.passes, 0, "in no passes nothing is tried");
        (0..self.passes).flat_map(move |pass| all.iter().skip(pass).step_by(self.passes).copied())
    }
}

/// The name of a case: a setting, a boundary of the workload, and what the power cut left there. Its text is
/// `crash/SEED/ENGINES/LAYER/BOUNDARY/CUT`, as in `crash/7/all/mmap/1200/keep-only:3`, with the [steps](Steps) behind it if not all are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaseId {
    /// Workload, engines and files.
    pub setting: Setting,
    /// After so many operations of the file system.
    pub at: usize,
    /// What is left of what was not synced.
    pub cut: PowerCut,
    /// The steps of the workload that are done.
    pub steps: Steps,
}

/// Whether it is the process that ended, and not the power.
fn is_kill(cut: PowerCut) -> bool {
    cut == PowerCut::KeepAll
}

/// The kind of a cut.
fn kind_of(cut: PowerCut) -> &'static str {
    match cut {
        PowerCut::KeepAll => "keep-all",
        PowerCut::DropUnsynced => "drop-unsynced",
        PowerCut::KeepOnly(_) => "keep-only",
        PowerCut::DropOnly(_) => "drop-only",
        PowerCut::KeepAlone(_) => "keep-alone",
        PowerCut::DropAlone(_) => "drop-alone",
        PowerCut::Random(_) => "random",
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, at, cut, steps } = self;
        write!(f, "crash/{setting}/{at}/{}", kind_of(*cut))?;
        match cut {
            PowerCut::KeepAll | PowerCut::DropUnsynced => {}
            PowerCut::KeepOnly(one)
            | PowerCut::DropOnly(one)
            | PowerCut::KeepAlone(one)
            | PowerCut::DropAlone(one) => write!(f, ":{one}")?,
            PowerCut::Random(seed) => write!(f, ":{seed}")?,
        }
        f.write_str(&steps.suffix())
    }
}

impl FromStr for CaseId {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let parse = || {
            let (parts, steps) = Steps::split(text)?;
            let &["crash", seed, engines, layer, at, cut] = &parts[..] else { return None };
            let cut = match cut.split_once(':') {
                None if cut == "keep-all" => PowerCut::KeepAll,
                None if cut == "drop-unsynced" => PowerCut::DropUnsynced,
                Some(("keep-only", one)) => PowerCut::KeepOnly(one.parse().ok()?),
                Some(("drop-only", one)) => PowerCut::DropOnly(one.parse().ok()?),
                Some(("keep-alone", one)) => PowerCut::KeepAlone(one.parse().ok()?),
                Some(("drop-alone", one)) => PowerCut::DropAlone(one.parse().ok()?),
                Some(("random", seed)) => PowerCut::Random(seed.parse().ok()?),
                _ => return None,
            };
            let setting = [seed, engines, layer].join("/").parse().ok()?;
            Some(Self { setting, at: at.parse().ok()?, cut, steps })
        };
        parse().ok_or_else(|| Unknown::new("case", text, "as in crash/7/all/mmap/1200/keep-only:3"))
    }
}

/// Opens the database with its log in the layer, for the `opening`th time: other options are drawn for each.
fn open(fs: &MemoryFs, setting: Setting, opening: u64) -> Result<Database, Error> {
    builder(fs, setting, opening).open()
}

fn builder(fs: &MemoryFs, setting: Setting, opening: u64) -> DatabaseBuilder {
    let layer = choices::layer(setting, "log", opening);
    let builder = history::builder(Arc::new(fs.clone())).log_layer(layer);
    choices::database(builder, setting.seed, opening)
}

/// Makes a keyspace, or opens it for the `opening`th time, now and then in another layer.
fn create(db: &Database, name: &str, setting: Setting, opening: u64) -> Result<(), Error> {
    let layer = choices::layer(setting, name, opening);
    history::create_in(db, name, setting, opening, layer)
}

/// A workload under way.
struct Work {
    setting: Setting,
    fs: MemoryFs,
    db: Option<Database>,
    openings: u64,
    /// The keyspaces that there are.
    made: Vec<&'static str>,
    history: History,
    dice: Dice,
}

impl Work {
    fn db(&self) -> &Database {
        self.db.as_ref().expect("the database is open")
    }

    /// Does what there are keyspaces for.
    fn step(&mut self, step: Step) {
        match step {
            Step::Create(name) => self.create(name),
            Step::Commits(count, keyspaces, most) => {
                let there = keyspaces.iter().copied().filter(|name| self.made.contains(name));
                let there: Vec<_> = there.collect();
                if !there.is_empty() {
                    self.some_commits(count, &there, most);
                }
            }
            Step::Together(count) => self.together(count),
            Step::Persist => self.persist(),
            Step::Reopen => self.reopen(),
            Step::Load(name)
            | Step::PersistKeyspace(name)
            | Step::Compact(name)
            | Step::Clear(name, _)
                if !self.made.contains(&name) => {}
            Step::Load(name) => self.load(name),
            Step::PersistKeyspace(name) => self.persist_keyspace(name),
            Step::Compact(name) => self.compact(name),
            Step::Clear(name, durability) => self.clear(name, durability),
        }
    }

    fn create(&mut self, name: &'static str) {
        create(self.db(), name, self.setting, self.openings).unwrap();
        self.made.push(name);
        self.history.promise(self.fs.operations(), |promise| promise.keyspaces += 1);
    }

    fn value(&mut self, most: usize) -> Vec<u8> {
        let len = self.dice.roll(most);
        self.dice.bytes(len)
    }

    fn change(&mut self, keyspace: &'static str, most: usize) -> Change {
        let engine = history::engine_of(keyspace, self.setting.engines);
        if engine == EngineKind::Lsm && self.dice.roll(12) == 0 {
            return history::deletion_of_all(keyspace, &format!("key {}", self.dice.roll(3)));
        }
        let key = history::key_in(keyspace, &format!("key {:02}", self.dice.roll(30)));
        let value = (self.dice.roll(5) > 0).then(|| self.value(most));
        (keyspace, key, value)
    }

    /// A commit of one to four writes to any of `keyspaces`.
    fn commit(&mut self, keyspaces: &[&'static str], most: usize, durability: Durability) {
        let writes = 1 + self.dice.roll(4);
        let changes: Vec<_> = (0..writes)
            .map(|_| {
                let keyspace = keyspaces[self.dice.roll(keyspaces.len())];
                self.change(keyspace, most)
            })
            .collect();
        self.begin(&changes);
        history::commit(self.db(), &changes, durability).unwrap();
        self.promise_commit(&changes, durability);
    }

    fn begin(&mut self, changes: &[Change]) {
        self.history.begin(self.fs.operations(), changes);
    }

    fn promise_commit(&mut self, changes: &[Change], durability: Durability) {
        let commits = self.history.commits();
        let logged = changes.iter().any(|(keyspace, ..)| history::is_logged(keyspace));
        self.history.promise(self.fs.operations(), |promise| match durability {
            _ if !logged => {}
            Durability::Buffered => {}
            Durability::Os => promise.handed_over = commits,
            Durability::Sync => (promise.handed_over, promise.synced) = (commits, commits),
        });
    }

    /// A sorted load, where there is such a thing: it is in files when it is done.
    fn load(&mut self, name: &'static str) {
        let engine = history::engine_of(name, self.setting.engines);
        if !matches!(engine, EngineKind::Lsm | EngineKind::Skip) {
            return;
        }
        let mut changes: Vec<Change> = Vec::new();
        for number in 0..LOADED {
            if self.dice.roll(2) == 0 {
                let key = history::key_in(name, &format!("key {number:02}"));
                changes.push((name, key, Some(self.value(300))));
            }
        }
        changes.sort();
        self.begin(&changes);
        history::load(self.db(), name, &changes).unwrap();
        self.history.promise_persisted(self.fs.operations(), name);
    }

    /// Empties a keyspace, where that can be done at once.
    fn clear(&mut self, name: &'static str, durability: Durability) {
        let engine = history::engine_of(name, self.setting.engines);
        let changes = self.history.model.deletion_of_each(name);
        if engine == EngineKind::Hash || changes.is_empty() {
            return;
        }
        self.begin(&changes);
        self.db().open_keyspace(name).unwrap().clear_with(durability).unwrap();
        self.promise_commit(&changes, durability);
    }

    fn some_commits(&mut self, count: usize, keyspaces: &[&'static str], most: usize) {
        for _ in 0..count {
            let durability = match self.dice.roll(6) {
                0 => Durability::Sync,
                1 | 2 => Durability::Buffered,
                _ => Durability::Os,
            };
            self.commit(keyspaces, most, durability);
            if self.dice.roll(8) == 0 {
                self.flush_log();
            }
        }
    }

    /// So many commits of each writer at the same time, and one more when all are done.
    fn together(&mut self, count: usize) {
        if !WRITTEN.iter().all(|name| self.made.contains(name)) {
            return;
        }
        let already = self.history.written_now();
        let seeds = [(); WRITERS].map(|()| self.dice.roll(1 << 32) as u64);
        // What of two threads came first, where that made no difference to the files.
        let order = Arc::new(AtomicU64::new(0));
        let works = seeds.into_iter().enumerate().map(|(writer, seed)| {
            let (db, fs, order) = (self.db().clone(), self.fs.clone(), Arc::clone(&order));
            let mut dice = Dice::new(seed);
            let numbers = already[writer]..already[writer] + count;
            Box::new(move || {
                let mut writes = Vec::new();
                let note = |write| {
                    let order = order.fetch_add(1, Ordering::SeqCst);
                    (order, (fs.operations(), writer, write))
                };
                for number in numbers {
                    let durability = match dice.roll(4) {
                        0 => Durability::Sync,
                        1 => Durability::Buffered,
                        _ => Durability::Os,
                    };
                    let changes = WRITTEN.map(|name| history::written(name, writer, number));
                    writes.push(note(Write::Begin));
                    history::commit(&db, &changes, durability).unwrap();
                    writes.push(note(Write::Acknowledged(durability)));
                }
                writes
            }) as threads::Work<_>
        });
        let writes = threads::together(works.collect(), true);
        let mut writes: Vec<_> = writes.into_iter().flatten().collect();
        writes.sort_by_key(|&(order, _)| order);
        self.history.wrote(writes.into_iter().map(|(_, write)| write).collect());
        self.commit(&WRITTEN, 100, Durability::Os);
    }

    fn flush_log(&mut self) {
        self.db().flush_log().unwrap();
        let commits = self.history.commits();
        self.history.promise(self.fs.operations(), |promise| promise.handed_over = commits);
    }

    fn all_is_durable(&mut self) {
        let commits = self.history.commits();
        self.history.promise(self.fs.operations(), |promise| promise.all(commits));
    }

    fn persist(&mut self) {
        self.db().persist().unwrap();
        self.all_is_durable();
    }

    fn persist_keyspace(&mut self, name: &str) {
        self.db().open_keyspace(name).unwrap().persist().unwrap();
        self.history.promise_persisted(self.fs.operations(), name);
    }

    /// Makes files smaller, and so durable.
    fn compact(&mut self, name: &str) {
        self.db().open_keyspace(name).unwrap().compact().unwrap();
        self.persist_keyspace(name);
    }

    fn reopen(&mut self) {
        self.db.take().expect("the database is open").close().unwrap();
        self.all_is_durable();
        self.openings += 1;
        let db = open(&self.fs, self.setting, self.openings).unwrap();
        for keyspace in db.keyspaces() {
            create(&db, &keyspace.name, self.setting, self.openings).unwrap();
        }
        self.db = Some(db);
    }
}

/// All keyspaces.
const ALL: [&str; 9] =
    ["alpha", "beta", "gamma", "delta", "late", "unlogged", "loose", "stray", "apart"];
/// Those with a log that are made first, one on each engine.
const LOGGED_ONES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// All that are made before the first reopening.
const EARLY: [&str; 8] = ["alpha", "beta", "gamma", "delta", "unlogged", "loose", "stray", "apart"];
/// Those that go on being written to while all are persisted, one after the other.
const OTHERS: [&str; 8] =
    ["alpha", "late", "gamma", "delta", "unlogged", "loose", "stray", "apart"];

/// What the workload does at each step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(&'static str),
    /// So many commits to any of these keyspaces, with values of fewer bytes than that.
    Commits(usize, &'static [&'static str], usize),
    /// So many commits of each of several threads.
    Together(usize),
    /// A sorted load, where there is such a thing.
    Load(&'static str),
    Persist,
    PersistKeyspace(&'static str),
    Compact(&'static str),
    /// Empties the keyspace, where that can be done at once.
    Clear(&'static str, Durability),
    Reopen,
}

const WORKLOAD: &[Step] = &[
    Step::Create("alpha"),
    Step::Create("beta"),
    Step::Create("gamma"),
    Step::Create("delta"),
    Step::Commits(25, &LOGGED_ONES, 300),
    Step::Create("unlogged"),
    Step::Create("loose"),
    Step::Create("stray"),
    Step::Create("apart"),
    Step::Commits(25, &EARLY, 300),
    Step::Load("alpha"),
    Step::Load("delta"),
    Step::Load("unlogged"),
    Step::Load("apart"),
    Step::PersistKeyspace("alpha"),
    Step::PersistKeyspace("gamma"),
    Step::PersistKeyspace("delta"),
    Step::Clear("stray", Durability::Buffered),
    Step::Commits(10, &["beta", "unlogged", "loose", "stray", "apart"], 300),
    Step::Persist,
    Step::PersistKeyspace("beta"),
    Step::Reopen,
    // Several segments, and a memtable that fills up by itself.
    Step::Commits(90, &LOGGED_ONES, 14_000),
    Step::Create("late"),
    Step::Commits(20, &["late", "unlogged", "alpha", "loose", "stray", "apart"], 300),
    Step::Together(6),
    Step::PersistKeyspace("unlogged"),
    Step::Commits(5, &OTHERS, 300),
    Step::PersistKeyspace("alpha"),
    Step::Commits(5, &OTHERS, 300),
    Step::PersistKeyspace("late"),
    Step::Commits(5, &OTHERS, 300),
    Step::PersistKeyspace("beta"),
    Step::Commits(5, &OTHERS, 300),
    Step::PersistKeyspace("gamma"),
    Step::Commits(5, &OTHERS, 300),
    Step::PersistKeyspace("delta"),
    Step::Commits(5, &OTHERS, 300),
    Step::PersistKeyspace("loose"),
    Step::Commits(5, &OTHERS, 300),
    Step::PersistKeyspace("stray"),
    Step::Commits(5, &OTHERS, 300),
    Step::PersistKeyspace("apart"),
    Step::Commits(5, &OTHERS, 300),
    Step::Compact("alpha"),
    Step::Compact("beta"),
    Step::Compact("gamma"),
    Step::Compact("delta"),
    Step::Clear("alpha", Durability::Os),
    Step::Commits(10, &ALL, 300),
    Step::Load("late"),
    Step::Load("alpha"),
    Step::Load("delta"),
    Step::Clear("gamma", Durability::Sync),
    Step::Clear("apart", Durability::Os),
    Step::Commits(2, &ALL, 300),
    Step::Reopen,
    Step::Commits(20, &ALL, 20_000),
    Step::PersistKeyspace("alpha"),
    Step::Compact("beta"),
    Step::PersistKeyspace("gamma"),
    Step::PersistKeyspace("delta"),
    Step::Commits(20, &ALL, 20_000),
    Step::Together(4),
    Step::Compact("unlogged"),
    Step::Compact("loose"),
    Step::Compact("stray"),
    Step::Compact("apart"),
    Step::Clear("delta", Durability::Buffered),
    Step::Clear("unlogged", Durability::Os),
    Step::Commits(10, &ALL, 20_000),
    Step::Reopen,
    Step::Commits(5, &ALL, 300),
];

/// The keyspaces that are made, in their order.
fn made(steps: Steps) -> impl Iterator<Item = &'static str> {
    steps.of(WORKLOAD).into_iter().filter_map(|step| match step {
        Step::Create(name) => Some(name),
        _ => None,
    })
}

/// Runs the workload once.
fn work(setting: Setting, steps: Steps) -> Work {
    let fs = MemoryFs::traced();
    let db = Some(open(&fs, setting, 0).unwrap());
    let (history, dice) = (History::of(setting), Dice::new(setting.seed));
    let mut work = Work { setting, fs, db, openings: 0, made: Vec::new(), history, dice };
    steps.of(WORKLOAD).into_iter().for_each(|step| work.step(step));
    work.db = None;
    work
}

/// An image to recover, and what must be left of the history in it.
struct Case {
    id: CaseId,
    image: MemoryFs,
    /// What must be left,
    needed: Needed,
    /// and what if the power fails before it is opened.
    synced: Needed,
    keyspaces: usize,
    /// The same image, whose recovery is to be cut off: at each of its operations, or only when all was read.
    traced: Option<(MemoryFs, Where)>,
}

/// Where a recovery is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    Everywhere,
    AtItsEnd,
}

impl Case {
    /// One whose recovery is cut off everywhere or not; what a recovery from a kill has shown is to survive in any case.
    fn new(id: CaseId, Trace { fs, history }: &Trace, cut_recovery: bool) -> Self {
        let promise = history.promised_at(id.at);
        let (needed, synced) = (promise.needed(is_kill(id.cut)), promise.needed(false));
        let image = fs.image(id.at, id.cut);
        let cut_off = match cut_recovery {
            true => Some(Where::Everywhere),
            false => is_kill(id.cut).then_some(Where::AtItsEnd),
        };
        let traced = cut_off.map(|cut_off| (fs.image_traced(id.at, id.cut), cut_off));
        Self { id, image, needed, synced, keyspaces: promise.keyspaces, traced }
    }

    /// What an image that was made while recovering this one must hold.
    fn again(&self, image: MemoryFs, needed: Needed) -> Self {
        Self { image, needed, traced: None, ..*self }
    }

    fn open(&self, more: u64) -> Result<Database, Error> {
        open(&self.image, self.id.setting, self.id.at as u64 + more)
    }

    /// Does one part of the case, by name, in an order of threads that is the same whenever it is tried.
    fn part<T>(&self, name: impl Hash, work: impl FnOnce() -> T) -> T {
        let seed = choices::mix(self.id.setting.seed, (self.id.to_string(), name));
        watched(self.id, || simulated_in_peace(seed, work))
    }
}

/// What a workload did, and what must be left of it.
struct Trace {
    fs: MemoryFs,
    history: History,
}

impl Trace {
    /// That of these steps.
    fn new(setting: Setting, steps: Steps) -> Self {
        simulated_in_peace(setting.seed, || {
            let Work { fs, history, .. } = work(setting, steps);
            Self { fs, history }
        })
    }
}

/// The cuts that are tried where operations are pending: none that leaves what another one leaves anyway, but for names of different
/// directories.
fn cuts(fs: &MemoryFs, at: usize, Effort { step, randoms, .. }: Effort) -> Vec<PowerCut> {
    let unsynced = fs.unsynced(at);
    if unsynced == 0 {
        return vec![PowerCut::KeepAll];
    }
    let mut cuts = vec![PowerCut::KeepAll, PowerCut::DropUnsynced];
    // All, or the latest ones, and some of the older ones, other ones at each boundary.
    let recent = unsynced.saturating_sub(2)..unsynced;
    let each = if step == 1 { 1 } else { (unsynced / (SINGLES - 2)).max(1) };
    let older = (at % each..unsynced.saturating_sub(2)).step_by(each);
    for single in recent.chain(older) {
        match unsynced {
            1 => {}
            // To drop one of two is to keep the other one.
            2 => cuts.push(PowerCut::KeepOnly(single)),
            _ => cuts.extend([PowerCut::KeepOnly(single), PowerCut::DropOnly(single)]),
        }
        if fs.is_name(at, single) {
            let are_names = |mut others: Range<usize>| others.any(|other| fs.is_name(at, other));
            if are_names(0..single) {
                cuts.push(PowerCut::KeepAlone(single));
            }
            if unsynced > 2 && are_names(single + 1..unsynced) {
                cuts.push(PowerCut::DropAlone(single));
            }
        }
    }
    let seeds = (0..randoms.min(MOST_RANDOMS)).map(|seed| (at * MOST_RANDOMS + seed) as u64);
    cuts.extend(seeds.map(PowerCut::Random));
    cuts
}

/// What those see who open the image for reading only, which changes nothing; `None` if there is no database yet.
fn look(case: &Case) -> Result<Option<Fingerprint>, String> {
    let CaseId { setting, at, .. } = case.id;
    let fs = case.image.fork_traced();
    let state = match builder(&fs, setting, at as u64).read_only(true).open() {
        Ok(db) => Fingerprint::of(&db).map(Some),
        Err(Error::NotADatabase { .. }) if case.keyspaces == 0 => Ok(None),
        Err(error) => return Err(format!("does not open for reading only: {error:?}")),
    };
    if fs.operations() > 0 && fs.files() != case.image.files() {
        return Err("those who only read have changed files".into());
    }
    state.map_err(|error| format!("cannot be read by those who only read: {error:?}"))
}

/// Recovers an image. Gives what it holds, and after how many commits of each part it does.
fn check_open(history: &History, case: &Case) -> Result<(Database, Model, [usize; PARTS]), String> {
    let is_looked_at =
        choices::mix(case.id.setting.seed, case.id.to_string()).is_multiple_of(LOOKS);
    let seen = if is_looked_at { look(case)? } else { None };
    let db = case.open(0).map_err(|error| format!("does not open: {error:?}"))?;
    let model = Model::read(&db).map_err(|error| format!("cannot be read: {error:?}"))?;
    if seen.is_some_and(|seen| seen != model.fingerprint) {
        return Err("those who only read see another state".into());
    }
    let found = history.find(model.fingerprint, case.id.at, case.needed)?;
    for name in made(case.id.steps).take(case.keyspaces) {
        db.open_keyspace(name).map_err(|error| error.to_string())?;
    }
    Ok((db, model, found))
}

/// Recovers an image, writes to it, and recovers that.
fn check(history: &History, case: &Case) -> Result<(), String> {
    let is_used_on = choices::mix(case.id.setting.seed, ("used on", case.id.to_string()))
        .is_multiple_of(USED_ON);
    let traced = is_used_on.then(|| case.again(case.image.fork_traced(), case.needed));
    let case = traced.as_ref().unwrap_or(case);
    let (db, model, found) = check_open(history, case)?;
    let problem = |error: Error| format!("after recovery: {error:?}");
    // Another commit takes the very place of the one that was lost: nothing of that may come back with it.
    let exists = |(keyspace, ..): &Change| db.open_keyspace(keyspace).is_ok();
    let alike = history.alike(found[LOGGED]).filter(|changes| changes.iter().all(exists));
    let CaseId { setting, at, .. } = case.id;
    create(&db, "late", setting, at as u64).map_err(problem)?;
    let new: Change = ("late", b"written after recovery".to_vec(), Some(b"kept".to_vec()));
    let changes = alike.unwrap_or_else(|| vec![new]);
    history::commit(&db, &changes, Durability::Os).map_err(problem)?;
    let mut model = history.after(model, &changes);
    if Fingerprint::of(&db).map_err(problem)? != model.fingerprint {
        return Err("what was committed after recovery is not what is read then".into());
    }
    if is_used_on {
        model = use_on(history, case, &db, model)?;
    }
    let state = model.fingerprint;
    db.close().map_err(problem)?;
    let db = case.open(1).map_err(problem)?;
    let dropped = db.recovery().dropped_bytes;
    if dropped > 0 {
        return Err(format!("{dropped} bytes of a log that was closed are dropped"));
    }
    if Fingerprint::of(&db).map_err(problem)? != state {
        return Err("reopening gives another state than there was when it was closed".into());
    }
    let leftovers = history::leftovers(&db, || history::files(&case.image)).map_err(problem)?;
    if let Some(leftovers) = leftovers {
        return Err(leftovers);
    }
    let report = db.verify().map_err(problem)?;
    match report.problems.first() {
        Some(error) => Err(format!("verify: {error:?}")),
        None => Ok(()),
    }
}

/// Writes to each keyspace of a recovered database, persists and compacts all, syncs another commit, and cuts the power: nothing of that is lost.
fn use_on(history: &History, case: &Case, db: &Database, model: Model) -> Result<Model, String> {
    let problem = |error: Error| format!("used on after recovery: {error:?}");
    let expect = |db: &Database, model: &Model, when: &str| {
        let is_right = Fingerprint::of(db).map_err(problem)? == model.fingerprint;
        is_right.then_some(()).ok_or_else(|| format!("used on, it holds something else {when}"))
    };
    let names: Vec<_> = history::KEYSPACES
        .iter()
        .map(|&(name, ..)| name)
        .filter(|name| db.open_keyspace(name).is_ok())
        .collect();
    let changes = |round: u8| {
        let of_one = |&name: &&'static str| {
            let key = |number: u8| history::key_in(name, &format!("key {:02}", number % 30));
            let put = |number| (name, key(number), Some(vec![round; 200]));
            [put(7 * round), put(7 * round + 1), (name, key(11 * round), None)]
        };
        names.iter().flat_map(of_one).collect::<Vec<Change>>()
    };
    let write = |model: Model, round, durability| {
        history::commit(db, &changes(round), durability).map_err(problem)?;
        Ok::<_, String>(history.after(model, &changes(round)))
    };
    let model = write(model, 1, Durability::Buffered)?;
    db.persist().map_err(problem)?;
    expect(db, &model, "when all is persisted")?;
    let model = write(model, 2, Durability::Os)?;
    for name in &names {
        db.open_keyspace(name).and_then(|keyspace| keyspace.compact()).map_err(problem)?;
    }
    expect(db, &model, "when all is compacted")?;
    db.persist().map_err(problem)?;
    let last = [("late", history::key_in("late", "key 29"), Some(b"synced".to_vec()))];
    history::commit(db, &last, Durability::Sync).map_err(problem)?;
    let model = history.after(model, &last);
    let image = case.image.image(case.image.operations(), PowerCut::DropUnsynced);
    let left = open(&image, case.id.setting, case.id.at as u64 + 2).map_err(problem)?;
    expect(&left, &model, "when the power has failed")?;
    left.close().map_err(problem)?;
    Ok(model)
}

/// Recovers an image and cuts the power in the middle of that: after a kill with what was not synced before it. Gives how many images were
/// recovered, and how many of them used then.
fn check_cut_recovery(
    history: &History,
    case: &Case,
    (fs, cut_off): &(MemoryFs, Where),
) -> Result<[usize; 2], String> {
    let (mut images, mut used) = (0, 0);
    let (found, opened) = case.part("recovery", || {
        let recovering = case.again(fs.clone(), case.needed);
        let (_db, model, commits) = check_open(history, &recovering)?;
        let found = Needed { commits, written: model.fingerprint.written };
        Ok::<_, String>((found, fs.operations()))
    })?;
    let first = if *cut_off == Where::Everywhere { 0 } else { opened };
    for at in first..=opened {
        let seed = PowerCut::Random((case.id.at * MOST_RANDOMS + at) as u64);
        let mut cuts = match fs.unsynced(at) {
            0 => vec![PowerCut::KeepAll],
            1 => vec![PowerCut::KeepAll, PowerCut::DropUnsynced, seed],
            unsynced => {
                let one = PowerCut::KeepOnly(at % unsynced);
                vec![PowerCut::KeepAll, PowerCut::DropUnsynced, one, seed]
            }
        };
        if *cut_off == Where::AtItsEnd {
            cuts.retain(|&cut| cut == PowerCut::DropUnsynced);
        }
        for cut in cuts {
            let needed = match is_kill(cut) {
                // What was seen after recovery stays.
                _ if at == opened => found,
                true => case.needed,
                false => case.synced,
            };
            let again = case.again(fs.image(at, cut), needed);
            images += 1;
            // The same wherever else it is cut off.
            let name = (at, kind_of(cut));
            let is_used = choices::mix(case.id.at as u64, name).is_multiple_of(USED);
            used += usize::from(is_used);
            let opened_again = case.part(name, || match is_used {
                true => check(history, &again),
                false => check_open(history, &again).map(drop),
            });
            opened_again.map_err(|problem| {
                format!("the recovery cut off after {at} of {opened}, {cut:?}: {problem}")
            })?;
        }
    }
    Ok([images, used])
}

/// Checks a case; a panic is a problem like any other.
fn attempt(history: &History, case: &Case) -> Report {
    let checked = panics::caught(|| {
        let cut_off = match &case.traced {
            Some(traced) => check_cut_recovery(history, case, traced)?,
            None => [0; 2],
        };
        case.part("image", || check(history, case)).map(|()| cut_off)
    });
    let [images, used] = match checked.unwrap_or_else(Err) {
        Ok(cut_off) => cut_off.map(|count| count as u64),
        Err(problem) => return Report::of_violation(case.id, problem),
    };
    let mut report = Report { cases: images + 1, ..Report::default() };
    report.fire(kind_of(case.id.cut), 1);
    if images > 0 {
        report.fire("cut-recovery", images);
        report.count("cut recoveries that were used then", used);
    }
    report
}

/// The trace of a workload, which is to go without a panic.
fn trace(setting: Setting, steps: Steps) -> Result<Trace, Report> {
    let case = CaseId { setting, at: 0, cut: PowerCut::KeepAll, steps };
    panics::caught(|| watched(case, || Trace::new(setting, steps)))
        .map_err(|panic| Report::of_violation(case, format!("the workload itself {panic}")))
}

/// Runs the workload of a setting, and cuts the power where `effort` says, for as long as it is to `go_on` with the case of this name. Images are
/// recovered by as many threads as there are processors. A case is an image, those of recoveries that were cut off among them; an
/// operation is one of the file system in the workload.
pub fn run(
    setting: Setting,
    effort: Effort,
    go_on: impl Fn(&dyn fmt::Display) -> bool + Sync,
) -> Report {
    let steps = Steps::ALL;
    let trace = match trace(setting, steps) {
        Ok(trace) => trace,
        Err(report) => return report,
    };
    let Trace { fs, history } = &trace;
    let operations = fs.operations();
    let [reached, kept] = [const { AtomicU64::new(0) }; 2];
    let boundaries: BTreeSet<_> = effort.boundaries(setting.seed, operations).collect();
    let is_new = |at: &usize| *at >= effort.from && !boundaries.contains(at);
    let moments: BTreeSet<_> = history.moments().filter(is_new).collect();
    let all: Vec<_> = boundaries.union(&moments).copied().collect();
    let all = effort.in_passes(&all).flat_map(|at| {
        let is_moment = moments.contains(&at);
        let count = if is_moment { &kept } else { &reached };
        count.fetch_add(1, Ordering::Relaxed);
        let cuts = match is_moment {
            true if fs.unsynced(at) == 0 => vec![PowerCut::KeepAll],
            true => vec![PowerCut::DropUnsynced],
            false => cuts(fs, at, effort),
        };
        let order = dice::shuffled(cuts.len(), choices::mix(setting.seed, at));
        let mut images: Vec<_> = order.take(effort.images).collect();
        let drawn = images.first().copied();
        images.sort_unstable();
        let of = move |image| CaseId { setting, at, cut: cuts[image], steps };
        let case = move |image| (Some(image) == drawn, of(image));
        images.into_iter().map(case)
    });
    // Images are made where they are asked for in order, which is cheap.
    let case = |(made, (is_drawn, id)): (usize, (bool, CaseId))| {
        let cut_recovery = match effort.step {
            1 => is_drawn,
            _ => made.is_multiple_of(RECOVERY_CUTS),
        };
        Case::new(id, &trace, cut_recovery)
    };
    let cases = all.enumerate().map(case);
    let mut report = workers::sum(cases, |case| go_on(&case.id), |case| attempt(history, &case));
    report.operations = operations as u64;
    report.count("commits", history.commits() as u64);
    report.count("boundaries", reached.into_inner());
    report.count("others at which something was promised", kept.into_inner());
    report
}

/// Tries one case again, and cuts off its recovery, too. With the feature `simulation` the image and the order of threads are the very same.
///
/// # Errors
/// If there is no such case.
pub fn replay(id: CaseId) -> Result<Report, Unknown> {
    let trace = match trace(id.setting, id.steps) {
        Ok(trace) => trace,
        Err(report) => return Ok(report),
    };
    let nowhere = |what: String| Err(Unknown::new("case", &id.to_string(), what));
    let operations = trace.fs.operations();
    if id.at > operations {
        return nowhere(format!("the workload has {operations} operations"));
    }
    let unsynced = trace.fs.unsynced(id.at);
    if let PowerCut::KeepOnly(one)
    | PowerCut::DropOnly(one)
    | PowerCut::KeepAlone(one)
    | PowerCut::DropAlone(one) = id.cut
        && one >= unsynced
    {
        return nowhere(format!("{unsynced} operations are not synced there"));
    }
    Ok(attempt(&trace.history, &Case::new(id, &trace, true)))
}

/// Looks for a shorter workload that fails like the one of this violation of [`run`], for about so long: with an image that is left by a power cut of the same
/// kind, anywhere. Says which steps are left. `None` if there is none.
#[must_use]
pub fn shorten(violation: &Violation, time: Duration) -> Option<Violation> {
    let id: CaseId = violation.case.parse().ok()?;
    let until = Instant::now() + time;
    // To cut off recoveries takes long, and most failures do without.
    let alone = |trace: &Trace| attempt(&trace.history, &Case::new(id, trace, false));
    let fails_alone = |trace: &Trace| !alone(trace).violations.is_empty();
    let cut_recovery = trace(id.setting, id.steps).is_ok_and(|trace| !fails_alone(&trace));
    let failing = |steps| first_like(CaseId { steps, ..id }, cut_recovery, until);
    let (steps, violation) = steps::shorten(0..WORKLOAD.len(), until, failing)?;
    let problem = format!("{}; {:?}", violation.problem, steps.of(WORKLOAD));
    Some(Violation { problem, ..violation })
}

/// The first image of a workload that is found to fail, of those that a power cut of this kind leaves.
fn first_like(like: CaseId, cut_recovery: bool, until: Instant) -> Option<Violation> {
    let CaseId { setting, steps, cut, .. } = like;
    let trace = match trace(setting, steps) {
        Ok(trace) => trace,
        Err(report) => return report.violations.into_iter().next(),
    };
    let Trace { fs, history } = &trace;
    let cases = (0..=fs.operations()).flat_map(|at| {
        let all = cuts(fs, at, Effort::one_in(1)).into_iter();
        let alike = all.filter(|&other| kind_of(other) == kind_of(cut));
        alike.map(move |cut| CaseId { at, cut, ..like })
    });
    let cases = cases.map(|id| Case::new(id, &trace, cut_recovery));
    workers::first_failing(cases, until, |case| attempt(history, &case))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use turbidite::Layer;

    use super::*;
    use crate::setting::Engines;

    fn trace(seed: u64, layer: Layer) -> Trace {
        super::trace(Setting::new(seed, layer), Steps::ALL).ok().unwrap()
    }

    #[test]
    fn the_name_of_a_case_is_read_again() {
        let cuts = [
            PowerCut::KeepAll,
            PowerCut::DropUnsynced,
            PowerCut::KeepOnly(3),
            PowerCut::DropOnly(0),
            PowerCut::KeepAlone(4),
            PowerCut::DropAlone(5),
            PowerCut::Random(u64::MAX),
        ];
        for cut in cuts {
            for steps in ["all", "f00d"].map(|steps| steps.parse().unwrap()) {
                let id = CaseId { setting: Setting::new(7, Layer::Mmap), at: 1200, cut, steps };
                assert_eq!(id.to_string().parse::<CaseId>().unwrap(), id);
            }
        }
        for text in [
            "",
            "crash/7/all/mmap/1200",
            "crash/7/all/mmap/1200/keep",
            "crash/x/all/mmap/1200/keep-all",
            "crash/7/mmap/1200/keep-all",
        ] {
            let error = text.parse::<CaseId>().unwrap_err().to_string();
            assert!(error.contains("crash/7/all/mmap/1200/keep-only:3"), "{error}");
        }
    }

    #[test]
    fn a_promise_that_cannot_be_kept_is_a_violation() {
        let trace = trace(7, Layer::Mmap);
        let (at, cut) = (trace.fs.operations(), PowerCut::KeepAll);
        let id = CaseId { setting: Setting::new(7, Layer::Mmap), at, cut, steps: Steps::ALL };
        let case = || Case::new(id, &trace, false);
        assert!(attempt(&trace.history, &case()).violations.is_empty());
        let mut case = case();
        case.needed.commits = [usize::MAX; PARTS];
        let report = attempt(&trace.history, &case);
        let [violation] = &report.violations[..] else { panic!("{report:?}") };
        assert!(violation.problem.contains("are left of"), "{}", violation.problem);
        assert_eq!(violation.case, id.to_string());
    }

    #[test]
    fn each_engine_by_itself_is_recovered() {
        for engines in Engines::each() {
            let setting = Setting { engines, ..Setting::new(3, Layer::Positional) };
            let report = run(setting, Effort { randoms: 1, ..Effort::one_in(300) }, |_| true);
            assert!(report.violations.is_empty(), "{:?}", report.violations);
            assert!(report.cases > 20 && report.faults_fired() == report.cases, "{report:?}");
        }
    }

    #[test]
    fn a_run_begins_where_another_one_has_ended() {
        let boundaries = |step, from, operations| {
            let effort = Effort { from, ..Effort::one_in(step) };
            effort.boundaries(3, operations).collect::<Vec<_>>()
        };
        // Both ends, and each 300th from the third one on.
        for from in [0, 1, 3] {
            assert_eq!(boundaries(300, from, 904), [0, 3, 303, 603, 903, 904]);
        }
        assert_eq!(boundaries(300, 4, 904), [0, 303, 603, 903, 904]);
        assert_eq!(boundaries(300, 303, 904), [0, 303, 603, 903, 904]);
        assert_eq!(boundaries(300, 304, 904), [0, 603, 903, 904]);
        assert_eq!(boundaries(300, 0, 903), [0, 3, 303, 603, 903]);
        assert_eq!(boundaries(1, 0, 4), [0, 1, 2, 3, 4]);
        assert_eq!(boundaries(1, 3, 4), [0, 3, 4]);
        for from in [4, 5, usize::MAX] {
            assert_eq!(boundaries(1, from, 4), [0, 4]);
        }

        let setting =
            Setting { engines: Engines::each().remove(0), ..Setting::new(3, Layer::Mmap) };
        let report =
            run(setting, Effort { from: usize::MAX, randoms: 0, ..Effort::one_in(300) }, |_| true);
        assert_eq!(report.counts["boundaries"], 2);
        assert!(report.operations > 300 && report.violations.is_empty(), "{report:?}");
    }

    #[test]
    fn passes_are_all_over_the_workload_and_try_the_same() {
        let effort = Effort { passes: 3, ..Effort::one_in(1) };
        let all: Vec<_> = effort.in_passes(&[0, 1, 2, 3, 4, 5, 6]).collect();
        assert_eq!(all, [0, 3, 6, 1, 4, 2, 5]);
        assert_eq!(effort.in_passes(&[0, 1]).collect::<Vec<_>>(), [0, 1]);

        let setting =
            Setting { engines: Engines::each().remove(0), ..Setting::new(3, Layer::Mmap) };
        // The boundary and the name of each case but the first one, of which nobody is asked.
        let tried = |images, passes| {
            let names = Mutex::new(Vec::new());
            let effort = Effort { randoms: 1, images, passes, ..Effort::one_in(300) };
            let report = run(setting, effort, |case| {
                let name = case.to_string();
                let at: usize = name.split('/').nth(4).unwrap().parse().unwrap();
                names.lock().unwrap().push((at, name));
                true
            });
            assert!(report.violations.is_empty(), "{:?}", report.violations);
            names.into_inner().unwrap()
        };
        let few = tried(2, 5);
        let last = few.iter().map(|&(at, _)| at).max();
        let pass = &few[..few.len() / 4];
        assert!(pass.iter().map(|&(at, _)| at).max() > last.map(|at| at * 3 / 4), "{few:?}");
        let mut of_each = BTreeMap::new();
        few.iter().for_each(|(at, _)| *of_each.entry(at).or_insert(0) += 1);
        assert!(of_each.len() > 10 && of_each.values().all(|&images| images <= 2), "{of_each:?}");
        #[cfg(feature = "simulation")]
        {
            let all = tried(usize::MAX, 1);
            assert!(all.is_sorted_by_key(|&(at, _)| at), "{all:?}");
            let set = |tried: Vec<_>| tried.into_iter().collect::<BTreeSet<(usize, String)>>();
            let (few, all) = (set(few), set(all));
            assert_eq!(set(tried(usize::MAX, 5)), all);
            assert!(few.len() < all.len() && few.is_subset(&all), "{few:?} of {all:?}");
        }
    }

    #[test]
    fn a_shorter_workload_can_be_run_too() {
        let setting = Setting::new(7, Layer::Positional);
        let until = Instant::now() + Duration::from_secs(600);
        for steps in ["0", "211", "8000000000a10"] {
            let steps = steps.parse().unwrap();
            let like = CaseId { setting, at: 0, cut: PowerCut::DropUnsynced, steps };
            let found = first_like(like, false, until);
            assert!(found.is_none(), "{found:?}");
        }
        let fine =
            Violation { case: format!("crash/{setting}/9/keep-all"), problem: String::new() };
        assert!(shorten(&fine, Duration::from_millis(300)).is_none());
    }

    #[cfg(feature = "simulation")]
    #[test]
    fn a_seed_is_a_trace() {
        for layer in [Layer::Mmap, Layer::Positional] {
            let [one, two] = [(); 2].map(|()| trace(11, layer));
            assert_eq!(one.fs.operations(), two.fs.operations());
            let at = one.fs.operations() / 2;
            let files = |trace: &Trace| trace.fs.image(at, PowerCut::DropUnsynced).files();
            assert!(files(&one) == files(&two));
        }
    }
}
