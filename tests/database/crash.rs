//! Power cuts and kills at every I/O boundary of a workload, and in the recoveries from them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use turbidite::vfs::{MemoryFs, PowerCut};
use turbidite::{Database, Durability, Error, Layer};

use crate::choices;
use crate::history::{self, Change, Dice, Fingerprint, History, LOGGED, PARTS};

/// So many of the single pending writes are kept alone, and dropped alone, at each boundary.
const SINGLES: usize = 5;
/// One image in so many is recovered with the recovery itself cut off.
const RECOVERY_CUTS: usize = 41;

/// How many random images there are at each boundary, and half of how many more boundaries there are than asked for.
fn effort() -> usize {
    std::env::var("TURBIDITE_CRASH_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// Opens the database with its log in `layer`, for the `opening`th time: other options are drawn for each.
fn open(fs: &MemoryFs, layer: Layer, opening: u64) -> Result<Database, Error> {
    let builder = history::builder(Arc::new(fs.clone())).log_layer(layer);
    choices::database(builder, choices::seed(), opening).open()
}

/// Opens or creates a keyspace in `layer`, likewise.
fn create(db: &Database, name: &str, layer: Layer, opening: u64) -> Result<(), Error> {
    db.keyspace(name, history::drawn(name, opening).layer(layer)).map(drop)
}

/// A workload under way.
struct Work {
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
        create(self.db(), name, self.layer, self.openings).unwrap();
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
        let db = open(&self.fs, self.layer, self.openings).unwrap();
        for keyspace in db.keyspaces() {
            create(&db, &keyspace.name, self.layer, self.openings).unwrap();
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
fn work(layer: Layer) -> Work {
    let fs = MemoryFs::traced();
    let db = Some(open(&fs, layer, 0).unwrap());
    let (history, dice) = (History::new(), Dice::new(7));
    let mut work = Work { layer, fs, db, openings: 0, history, dice };
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
    layer: Layer,
    at: usize,
    cut: PowerCut,
    image: MemoryFs,
    needed: [usize; PARTS],
    keyspaces: usize,
    cut_recovery: bool,
}

impl Case {
    /// What an image of `recovered`, which was made while recovering this one, must hold.
    fn again(&self, image: MemoryFs, cut: PowerCut) -> Self {
        Self { image, cut, cut_recovery: false, ..*self }
    }
}

/// The cuts that are tried where `unsynced` operations are pending.
fn cuts(at: usize, unsynced: usize) -> Vec<PowerCut> {
    let mut cuts = vec![PowerCut::KeepAll, PowerCut::DropUnsynced];
    // The latest ones, and some of the older ones, other ones at each boundary.
    let recent = unsynced.saturating_sub(2)..unsynced;
    let step = (unsynced / (SINGLES - 2)).max(1);
    let older = (at % step..unsynced.saturating_sub(2)).step_by(step);
    for single in recent.chain(older) {
        cuts.extend([PowerCut::KeepOnly(single), PowerCut::DropOnly(single)]);
    }
    cuts.extend((0..effort()).map(|seed| PowerCut::Random((at * 1000 + seed) as u64)));
    cuts
}

fn check_open(history: &History, case: &Case) -> Result<(Database, [usize; PARTS]), String> {
    let db = open(&case.image, case.layer, case.at as u64)
        .map_err(|error| format!("does not open: {error:?}"))?;
    let state = Fingerprint::of(&db).map_err(|error| format!("cannot be read: {error:?}"))?;
    let found = history.find(state, case.at, case.needed)?;
    let made = LOGGED_ONES.into_iter().chain(UNLOGGED_ONES).chain(["late"]);
    for name in made.take(case.keyspaces) {
        db.open_keyspace(name).map_err(|error| error.to_string())?;
    }
    Ok((db, found))
}

/// Recovers an image, writes to it, and recovers that.
fn check(history: &History, case: &Case) -> Result<(), String> {
    if case.cut_recovery {
        check_cut_recovery(history, case)?;
    }
    let (db, found) = check_open(history, case)?;
    let problem = |error: Error| format!("after recovery: {error:?}");
    // Another commit takes the very place of the one that was lost: nothing of that may come back with it.
    let exists = |(keyspace, ..): &Change| db.open_keyspace(keyspace).is_ok();
    let alike = history.alike(found[LOGGED]).filter(|changes| changes.iter().all(exists));
    create(&db, "late", case.layer, case.at as u64).map_err(problem)?;
    let new: Change = ("late", b"written after recovery".to_vec(), Some(b"kept".to_vec()));
    let changes = alike.unwrap_or_else(|| vec![new]);
    history::commit(&db, &changes, Durability::Os).map_err(problem)?;
    let state = Fingerprint::of(&db).map_err(problem)?;
    db.close().map_err(problem)?;
    let db = open(&case.image, case.layer, case.at as u64 + 1).map_err(problem)?;
    if Fingerprint::of(&db).map_err(problem)? != state {
        return Err("reopening gives another state than there was when it was closed".into());
    }
    let report = db.verify().map_err(problem)?;
    match report.problems.first() {
        Some(error) => Err(format!("verify: {error:?}")),
        None => Ok(()),
    }
}

/// Recovers an image and cuts the power in the middle of that.
fn check_cut_recovery(history: &History, case: &Case) -> Result<(), String> {
    let fs = case.image.fork_traced();
    let mut recovering = case.again(fs.clone(), case.cut);
    let (db, found) = check_open(history, &recovering)?;
    let opened = fs.operations();
    drop(db);
    for at in 0..=opened {
        if at == opened {
            // What was seen after recovery stays.
            recovering.needed = found;
        }
        let seed = PowerCut::Random((case.at * 1000 + at) as u64);
        for cut in [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::KeepOnly(at % 7), seed] {
            let again = recovering.again(fs.image(at, cut), cut);
            let (db, _) = check_open(history, &again).map_err(|problem| {
                format!("the recovery cut off after {at} of {opened}, {cut:?}: {problem}")
            })?;
            drop(db);
        }
    }
    Ok(())
}

fn check_all(history: &History, cases: &Mutex<Receiver<Case>>) -> Vec<String> {
    let mut problems = Vec::new();
    loop {
        let case = cases.lock().unwrap().recv();
        let Ok(case) = case else { return problems };
        if let Err(problem) = check(history, &case) {
            problems.push(format!("at {}, {:?}: {problem}", case.at, case.cut));
        }
    }
}

/// Cuts the power at every `step`-th boundary of the workload, at more of them with more effort.
fn cut_everywhere(layer: Layer, step: usize) {
    let step = (2 * step / effort()).max(1);
    let Work { fs, history, .. } = work(layer);
    let history = Arc::new(history);
    let (images, cases) = sync_channel::<Case>(16);
    let cases = Arc::new(Mutex::new(cases));
    let checkers: Vec<_> = (0..std::thread::available_parallelism().map_or(2, |n| n.get()))
        .map(|_| {
            let (history, cases) = (Arc::clone(&history), Arc::clone(&cases));
            std::thread::spawn(move || check_all(&history, &cases))
        })
        .collect();
    let mut made = 0;
    for at in (0..=fs.operations()).step_by(step) {
        let promise = history.promised_at(at);
        for cut in cuts(at, fs.unsynced(at)) {
            let killed = cut == PowerCut::KeepAll;
            let image = fs.image(at, cut);
            let case = Case {
                layer,
                at,
                cut,
                image,
                needed: promise.needed(killed),
                keyspaces: promise.keyspaces,
                cut_recovery: usize::is_multiple_of(made, RECOVERY_CUTS),
            };
            made += 1;
            images.send(case).expect("the checkers take all");
        }
    }
    drop(images);
    let problems: Vec<_> = checkers.into_iter().flat_map(|c| c.join().unwrap()).collect();
    println!(
        "{layer}: {} images of {} operations and {} commits",
        made,
        fs.operations(),
        history.commits()
    );
    assert!(
        problems.is_empty(),
        "{} images were not recovered:\n{}",
        problems.len(),
        problems.iter().take(40).cloned().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn every_power_cut_leaves_a_prefix_with_all_that_was_promised() {
    cut_everywhere(Layer::Positional, 2);
    cut_everywhere(Layer::Mmap, 12);
}

#[test]
fn power_cuts_while_whole_blocks_are_written_leave_a_prefix() {
    cut_everywhere(Layer::Block { block_size: 4096 }, 12);
    cut_everywhere(Layer::Direct { block_size: 4096 }, 12);
}

#[test]
fn power_cuts_while_pages_are_written_back_leave_a_prefix() {
    cut_everywhere(Layer::BlockCache { block_size: 4096, pages: 16 }, 12);
    cut_everywhere(Layer::DirectCache { block_size: 512, pages: 64 }, 12);
}
