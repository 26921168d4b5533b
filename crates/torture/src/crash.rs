//! Power cuts and kills at every I/O boundary of a workload, and in the recoveries from them.
//!
//! The workload has a keyspace on each engine, with the log and without it, and does what programs do: commits of one and of several
//! writes, with every durability, flushes, compactions, closing and opening again with other options. Between any two of its calls to the file
//! system the power may have been cut. Of what was not synced then, nothing may be left, or all, or any one operation, or all but one, or
//! any part, with torn writes. Each image must open, with a state that there was, not older than was promised; what is written then must stay; and
//! [`verify`](turbidite::Database::verify) must find nothing. Of some images the recovery itself is cut off at each of its operations.

use std::fmt;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use turbidite::vfs::{MemoryFs, PowerCut};
use turbidite::{Database, Durability, Error, Layer};

use crate::history::{self, Change, Fingerprint, History, LOGGED, PARTS};
use crate::{Dice, choices, panics, simulated};

/// So many of the single pending writes are kept alone, and dropped alone, at each boundary.
const SINGLES: usize = 5;
/// One image in so many is recovered with the recovery itself cut off.
const RECOVERY_CUTS: usize = 41;

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// The power is cut at one boundary in so many, which is not 0, and at both ends; the seed says at which of them.
    pub step: usize,
    /// How many random images there are at each boundary.
    pub randoms: usize,
}

/// What came of it.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    /// How many images were recovered, those of recoveries that were cut off among them.
    pub images: u64,
    /// How many operations of the file system the workload had: boundaries between them are one more.
    pub operations: u64,
    /// How many commits it made.
    pub commits: u64,
    /// What was wrong.
    pub violations: Vec<Violation>,
}

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Where, for [`replay`].
    pub case: CaseId,
    /// What was wrong.
    pub problem: String,
}

/// The name of a case: a seed, a layer of files, a boundary of the workload, and what the power cut left there. Its text is
/// `crash/SEED/LAYER/BOUNDARY/CUT`, as in `crash/7/mmap/1200/keep-only:3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaseId {
    /// The seed of the workload and of its options.
    pub seed: u64,
    /// The layer of all files.
    pub layer: Layer,
    /// After so many operations of the file system.
    pub at: usize,
    /// What is left of what was not synced.
    pub cut: PowerCut,
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, layer, at, cut } = self;
        write!(f, "crash/{seed}/{layer}/{at}/")?;
        match cut {
            PowerCut::KeepAll => f.write_str("keep-all"),
            PowerCut::DropUnsynced => f.write_str("drop-unsynced"),
            PowerCut::KeepOnly(one) => write!(f, "keep-only:{one}"),
            PowerCut::DropOnly(one) => write!(f, "drop-only:{one}"),
            PowerCut::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

/// The text is not the name of a case.
#[derive(Clone, Debug)]
pub struct NoCase(String);

impl fmt::Display for NoCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(f, "{text:?} is not the name of a case, which is like crash/7/mmap/1200/keep-only:3")
    }
}

impl std::error::Error for NoCase {}

impl FromStr for CaseId {
    type Err = NoCase;

    fn from_str(text: &str) -> Result<Self, NoCase> {
        Self::parse(text).ok_or_else(|| NoCase(text.into()))
    }
}

impl CaseId {
    fn parse(text: &str) -> Option<Self> {
        let [seed, layer, at, cut] = *text.strip_prefix("crash/")?.split('/').collect::<Vec<_>>()
        else {
            return None;
        };
        let cut = match (cut, cut.split_once(':')) {
            ("keep-all", _) => PowerCut::KeepAll,
            ("drop-unsynced", _) => PowerCut::DropUnsynced,
            (_, Some(("keep-only", one))) => PowerCut::KeepOnly(one.parse().ok()?),
            (_, Some(("drop-only", one))) => PowerCut::DropOnly(one.parse().ok()?),
            (_, Some(("random", seed))) => PowerCut::Random(seed.parse().ok()?),
            _ => return None,
        };
        let layer = layers().into_iter().find(|known| known.to_string() == layer)?;
        Some(Self { seed: seed.parse().ok()?, layer, at: at.parse().ok()?, cut })
    }
}

/// The layers of files that there are, with page caches that fit the smallest budget.
#[must_use]
pub fn layers() -> Vec<Layer> {
    let small = |layer: Layer| layer.with_page_cache_pages(64).unwrap_or(layer);
    Layer::ALL.into_iter().map(small).collect()
}

/// Opens the database with its log in `layer`, for the `opening`th time: other options are drawn for each.
fn open(fs: &MemoryFs, seed: u64, layer: Layer, opening: u64) -> Result<Database, Error> {
    let builder = history::builder(Arc::new(fs.clone())).log_layer(layer);
    choices::database(builder, seed, opening).open()
}

/// Opens or creates a keyspace in `layer`, likewise.
fn create(db: &Database, name: &str, seed: u64, layer: Layer, opening: u64) -> Result<(), Error> {
    db.keyspace(name, history::drawn(name, seed, opening).layer(layer)).map(drop)
}

/// A workload under way.
struct Work {
    seed: u64,
    layer: Layer,
    fs: MemoryFs,
    db: Option<Database>,
    openings: u64,
    history: History,
    dice: Dice,
}

impl Work {
    fn db(&self) -> &Database {
        self.db.as_ref().expect("the database is open")
    }

    fn create(&mut self, name: &str) {
        create(self.db(), name, self.seed, self.layer, self.openings).unwrap();
        self.history.promise(self.fs.operations(), |promise| promise.keyspaces += 1);
    }

    fn value(&mut self, most: usize) -> Vec<u8> {
        let len = self.dice.roll(most);
        self.dice.bytes(len)
    }

    fn change(&mut self, keyspace: &'static str, most: usize) -> Change {
        if matches!(keyspace, "alpha" | "late" | "unlogged") && self.dice.roll(12) == 0 {
            return history::deletion_of_all(keyspace, &format!("key {}", self.dice.roll(3)));
        }
        let key = format!("key {:02}", self.dice.roll(30)).into_bytes();
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
        self.history.begin(self.fs.operations(), &changes);
        history::commit(self.db(), &changes, durability).unwrap();
        let commits = self.history.commits();
        let logged = changes.iter().any(|(keyspace, ..)| history::is_logged(keyspace));
        self.history.promise(self.fs.operations(), |promise| match durability {
            _ if !logged => {}
            Durability::Buffered => {}
            Durability::Os => promise.handed_over = commits,
            Durability::Sync => (promise.handed_over, promise.synced) = (commits, commits),
        });
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
        let commits = self.history.commits();
        if !history::is_logged(name) {
            let part = history::part_of(name);
            self.history.promise(self.fs.operations(), |p| p.persisted[part] = commits);
        }
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
        let db = open(&self.fs, self.seed, self.layer, self.openings).unwrap();
        for keyspace in db.keyspaces() {
            create(&db, &keyspace.name, self.seed, self.layer, self.openings).unwrap();
        }
        self.db = Some(db);
    }
}

/// All keyspaces.
const ALL: [&str; 9] =
    ["alpha", "beta", "gamma", "delta", "late", "unlogged", "loose", "stray", "apart"];
/// Those with a log that are made first, one on each engine.
const LOGGED_ONES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// Those without, likewise.
const UNLOGGED_ONES: [&str; 4] = ["unlogged", "loose", "stray", "apart"];

/// Runs the workload once.
fn work(seed: u64, layer: Layer) -> Work {
    let fs = MemoryFs::traced();
    let db = Some(open(&fs, seed, layer, 0).unwrap());
    let (history, dice) = (History::new(), Dice::new(seed));
    let mut work = Work { seed, layer, fs, db, openings: 0, history, dice };
    LOGGED_ONES.into_iter().for_each(|name| work.create(name));
    work.some_commits(25, &LOGGED_ONES, 300);
    UNLOGGED_ONES.into_iter().for_each(|name| work.create(name));
    work.some_commits(25, &[LOGGED_ONES, UNLOGGED_ONES].concat(), 300);
    work.persist_keyspace("alpha");
    work.persist_keyspace("gamma");
    work.persist_keyspace("delta");
    work.some_commits(10, &["beta", "unlogged", "loose", "stray", "apart"], 300);
    work.persist();
    work.persist_keyspace("beta");
    work.reopen();
    // Several segments, and a memtable that fills up by itself.
    work.some_commits(90, &LOGGED_ONES, 14_000);
    work.create("late");
    work.some_commits(20, &["late", "unlogged", "alpha", "loose", "stray", "apart"], 300);
    for name in ["unlogged", "alpha", "late", "beta", "gamma", "delta", "loose", "stray", "apart"] {
        work.persist_keyspace(name);
        let others = ["alpha", "late", "gamma", "delta", "unlogged", "loose", "stray", "apart"];
        work.some_commits(5, &others, 300);
    }
    LOGGED_ONES.into_iter().for_each(|name| work.compact(name));
    work.some_commits(10, &ALL, 300);
    work.reopen();
    work.some_commits(20, &ALL, 20_000);
    work.persist_keyspace("alpha");
    work.compact("beta");
    work.persist_keyspace("gamma");
    work.persist_keyspace("delta");
    work.some_commits(20, &ALL, 20_000);
    work.compact("unlogged");
    work.compact("loose");
    work.compact("stray");
    work.compact("apart");
    work.some_commits(10, &ALL, 20_000);
    work.reopen();
    work.some_commits(5, &ALL, 300);
    work.db = None;
    work
}

/// An image to recover, and what must be left of the history in it.
struct Case {
    id: CaseId,
    image: MemoryFs,
    needed: [usize; PARTS],
    keyspaces: usize,
    cut_recovery: bool,
}

impl Case {
    fn new(id: CaseId, Trace { fs, history }: &Trace, cut_recovery: bool) -> Self {
        let promise = history.promised_at(id.at);
        let needed = promise.needed(id.cut == PowerCut::KeepAll);
        let image = fs.image(id.at, id.cut);
        Self { id, image, needed, keyspaces: promise.keyspaces, cut_recovery }
    }

    /// What an image that was made while recovering this one must hold.
    fn again(&self, image: MemoryFs) -> Self {
        Self { image, cut_recovery: false, ..*self }
    }

    fn open(&self, more: u64) -> Result<Database, Error> {
        open(&self.image, self.id.seed, self.id.layer, self.id.at as u64 + more)
    }
}

/// What a workload did, and what must be left of it.
struct Trace {
    fs: MemoryFs,
    history: History,
}

impl Trace {
    /// That of a seed.
    fn new(seed: u64, layer: Layer) -> Self {
        simulated(seed, || {
            let Work { fs, history, .. } = work(seed, layer);
            Self { fs, history }
        })
    }
}

/// The cuts that are tried where `unsynced` operations are pending.
fn cuts(at: usize, unsynced: usize, randoms: usize) -> Vec<PowerCut> {
    let mut cuts = vec![PowerCut::KeepAll, PowerCut::DropUnsynced];
    // The latest ones, and some of the older ones, other ones at each boundary.
    let recent = unsynced.saturating_sub(2)..unsynced;
    let step = (unsynced / (SINGLES - 2)).max(1);
    let older = (at % step..unsynced.saturating_sub(2)).step_by(step);
    for single in recent.chain(older) {
        cuts.extend([PowerCut::KeepOnly(single), PowerCut::DropOnly(single)]);
    }
    cuts.extend((0..randoms).map(|seed| PowerCut::Random((at * 1000 + seed) as u64)));
    cuts
}

fn check_open(history: &History, case: &Case) -> Result<(Database, [usize; PARTS]), String> {
    let db = case.open(0).map_err(|error| format!("does not open: {error:?}"))?;
    let state = Fingerprint::of(&db).map_err(|error| format!("cannot be read: {error:?}"))?;
    let found = history.find(state, case.id.at, case.needed)?;
    let made = LOGGED_ONES.into_iter().chain(UNLOGGED_ONES).chain(["late"]);
    for name in made.take(case.keyspaces) {
        db.open_keyspace(name).map_err(|error| error.to_string())?;
    }
    Ok((db, found))
}

/// Recovers an image, writes to it, and recovers that. Gives how many images were recovered.
fn check(history: &History, case: &Case) -> Result<u64, String> {
    let images = if case.cut_recovery { check_cut_recovery(history, case)? } else { 0 };
    let (db, found) = check_open(history, case)?;
    let problem = |error: Error| format!("after recovery: {error:?}");
    // Another commit takes the very place of the one that was lost: nothing of that may come back with it.
    let exists = |(keyspace, ..): &Change| db.open_keyspace(keyspace).is_ok();
    let alike = history.alike(found[LOGGED]).filter(|changes| changes.iter().all(exists));
    let CaseId { seed, layer, at, .. } = case.id;
    create(&db, "late", seed, layer, at as u64).map_err(problem)?;
    let new: Change = ("late", b"written after recovery".to_vec(), Some(b"kept".to_vec()));
    let changes = alike.unwrap_or_else(|| vec![new]);
    history::commit(&db, &changes, Durability::Os).map_err(problem)?;
    let state = Fingerprint::of(&db).map_err(problem)?;
    db.close().map_err(problem)?;
    let db = case.open(1).map_err(problem)?;
    if Fingerprint::of(&db).map_err(problem)? != state {
        return Err("reopening gives another state than there was when it was closed".into());
    }
    let report = db.verify().map_err(problem)?;
    match report.problems.first() {
        Some(error) => Err(format!("verify: {error:?}")),
        None => Ok(images + 1),
    }
}

/// Recovers an image and cuts the power in the middle of that.
fn check_cut_recovery(history: &History, case: &Case) -> Result<u64, String> {
    let fs = case.image.fork_traced();
    let mut images = 0;
    let mut recovering = case.again(fs.clone());
    let (db, found) = check_open(history, &recovering)?;
    let opened = fs.operations();
    drop(db);
    for at in 0..=opened {
        if at == opened {
            // What was seen after recovery stays.
            recovering.needed = found;
        }
        let seed = PowerCut::Random((case.id.at * 1000 + at) as u64);
        for cut in [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::KeepOnly(at % 7), seed] {
            let again = recovering.again(fs.image(at, cut));
            let (db, _) = check_open(history, &again).map_err(|problem| {
                format!("the recovery cut off after {at} of {opened}, {cut:?}: {problem}")
            })?;
            drop(db);
            images += 1;
        }
    }
    Ok(images)
}

/// Checks a case; a panic is a problem like any other.
fn attempt(history: &History, case: &Case) -> Result<u64, Violation> {
    let checked = panics::caught(|| check(history, case)).unwrap_or_else(Err);
    checked.map_err(|problem| Violation { case: case.id, problem })
}

/// The trace of a workload, which is to go without a panic.
fn trace(seed: u64, layer: Layer) -> Result<Trace, Violation> {
    let case = CaseId { seed, layer, at: 0, cut: PowerCut::KeepAll };
    panics::caught(|| Trace::new(seed, layer))
        .map_err(|panic| Violation { case, problem: format!("the workload itself {panic}") })
}

/// Checks what comes, until nothing does.
fn check_all(history: &History, cases: &Mutex<Receiver<Case>>) -> (u64, Vec<Violation>) {
    let (mut images, mut violations) = (0, Vec::new());
    loop {
        let case = cases.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(case) = case else { return (images, violations) };
        match attempt(history, &case) {
            Ok(more) => images += more,
            Err(violation) => violations.push(violation),
        }
    }
}

/// Runs the workload of a seed over files of a layer, and cuts the power where `effort` says, for as long as it is to `go_on`. Images are
/// recovered by as many threads as there are processors.
pub fn run(seed: u64, layer: Layer, effort: Effort, go_on: impl Fn() -> bool) -> Outcome {
    let trace = match trace(seed, layer) {
        Ok(trace) => trace,
        Err(violation) => return Outcome { violations: vec![violation], ..Outcome::default() },
    };
    let Trace { fs, history } = &trace;
    let mut outcome = Outcome {
        operations: fs.operations() as u64,
        commits: history.commits() as u64,
        ..Outcome::default()
    };
    let (images, cases) = sync_channel::<Case>(16);
    let cases = Mutex::new(cases);
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
        let check = || check_all(history, &cases);
        let checkers: Vec<_> = (0..threads).map(|_| scope.spawn(check)).collect();
        let first = (seed % effort.step as u64) as usize;
        let between = (first..fs.operations()).step_by(effort.step).filter(|&at| at > 0);
        let boundaries = [0, fs.operations()].into_iter().chain(between);
        let all = boundaries.flat_map(|at| {
            let cuts = cuts(at, fs.unsynced(at), effort.randoms).into_iter();
            cuts.map(move |cut| CaseId { seed, layer, at, cut })
        });
        for (made, id) in all.enumerate().take_while(|(made, _)| *made == 0 || go_on()) {
            let case = Case::new(id, &trace, usize::is_multiple_of(made, RECOVERY_CUTS));
            images.send(case).expect("the checkers take all");
        }
        drop(images);
        for checker in checkers {
            let (images, violations) = checker.join().expect("panics are caught");
            outcome.images += images;
            outcome.violations.extend(violations);
        }
    });
    outcome
}

/// Tries one case again, and cuts off its recovery, too. With the feature `simulation` the image is the very same; the threads of its
/// recovery are in an order of their own.
///
/// # Errors
/// What was wrong.
pub fn replay(id: CaseId) -> Result<(), Violation> {
    let trace = trace(id.seed, id.layer)?;
    let nowhere = |what: String| Err(Violation { case: id, problem: what });
    let operations = trace.fs.operations();
    if id.at > operations {
        return nowhere(format!("there is no such case: the workload has {operations} operations"));
    }
    let unsynced = trace.fs.unsynced(id.at);
    if let PowerCut::KeepOnly(one) | PowerCut::DropOnly(one) = id.cut
        && one >= unsynced
    {
        return nowhere(format!(
            "there is no such case: {unsynced} operations are not synced there"
        ));
    }
    attempt(&trace.history, &Case::new(id, &trace, true)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_case_is_read_again() {
        let cuts = [
            PowerCut::KeepAll,
            PowerCut::DropUnsynced,
            PowerCut::KeepOnly(3),
            PowerCut::DropOnly(0),
            PowerCut::Random(u64::MAX),
        ];
        for (layer, cut) in layers().into_iter().flat_map(|layer| cuts.map(|cut| (layer, cut))) {
            let id = CaseId { seed: 7, layer, at: 1200, cut };
            assert_eq!(id.to_string().parse::<CaseId>().unwrap(), id);
        }
        for text in
            ["", "crash/7/mmap/1200", "crash/7/mmap/1200/keep", "crash/x/mmap/1200/keep-all"]
        {
            let error = text.parse::<CaseId>().unwrap_err().to_string();
            assert!(error.contains("crash/7/mmap/1200/keep-only:3"), "{error}");
        }
    }

    #[test]
    fn a_file_that_was_tampered_with_is_a_violation() {
        let trace = trace(7, Layer::Mmap).unwrap();
        let id = CaseId {
            seed: 7,
            layer: Layer::Mmap,
            at: trace.fs.operations(),
            cut: PowerCut::KeepAll,
        };
        let case = || Case::new(id, &trace, false);
        assert!(attempt(&trace.history, &case()).is_ok());
        // A promise that cannot be kept.
        let mut case = case();
        case.needed = [usize::MAX; PARTS];
        let violation = attempt(&trace.history, &case).unwrap_err();
        assert!(violation.problem.contains("are left of"), "{}", violation.problem);
    }

    #[cfg(feature = "simulation")]
    #[test]
    fn a_seed_is_a_trace() {
        for layer in [Layer::Mmap, Layer::Positional] {
            let [one, two] = [(); 2].map(|()| trace(11, layer).unwrap());
            assert_eq!(one.fs.operations(), two.fs.operations());
            let at = one.fs.operations() / 2;
            let files = |trace: &Trace| trace.fs.image(at, PowerCut::DropUnsynced).files();
            assert!(files(&one) == files(&two));
        }
    }
}
