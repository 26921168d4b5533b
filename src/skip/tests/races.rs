//! What happens at the same time as something else.

use std::hint;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::rig::Rig;
use crate::base::Kind;
use crate::contract::{Clear, Engine, Load, Write};
use crate::error::ErrorKind;
use crate::options::MAX_VALUE_LEN;
use crate::stats::VerifyReport;
use crate::vfs::{Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation, Times};

fn no_cut() -> crate::Result<()> {
    Ok(())
}

/// A load of these keys, with its number as the values, that is ready to be installed.
fn loaded(rig: &Rig, seqno: u64, keys: &[&str]) -> Box<dyn Load> {
    let mut load = rig.store.load().unwrap();
    for key in keys {
        load.push(key.as_bytes(), &seqno.to_be_bytes()).unwrap();
    }
    load.finish().unwrap();
    load
}

#[test]
fn persisting_takes_a_load_with_it_that_the_manifest_does_not_name_yet() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let rig = Rig::create(&fs);
    rig.put(1, "a");
    rig.visibility().publish(1);
    rig.store.cut(1);
    rig.store.persist().unwrap();
    for is_written in [false, true] {
        let (before, seqno) = if is_written { (3, 4) } else { (1, 2) };
        let flushes = rig.hold_flushes();
        if is_written {
            rig.put(before, "w");
        }
        let mut load = loaded(&rig, seqno, &["b", "c"]);
        load.install(before, seqno);
        rig.visibility().publish(seqno);
        rig.store.synchronize(&no_cut).unwrap();
        assert_eq!((rig.store.persisted(), rig.store.oldest_unpersisted()), (seqno, None));
        assert_eq!(rig.log.synced.load(Ordering::Relaxed), seqno, "the log has what is persisted");
        load.wait().unwrap();
        drop(flushes);
        // The process is killed.
        let killed: Arc<dyn Fs> = Arc::new(memory.fork());
        let again = Rig::open(&killed);
        assert_eq!(again.store.persisted(), seqno);
        for (key, value) in [("a", 1), ("b", seqno), ("c", seqno)] {
            assert_eq!(again.get(key, seqno), Some(value), "{key}");
        }
        if is_written {
            assert_eq!(again.get("w", seqno), Some(before));
        } else {
            rig.put(seqno + 1, "between");
            rig.visibility().publish(seqno + 1);
            rig.store.cut(seqno + 1);
            rig.store.persist().unwrap();
        }
    }
}

#[test]
fn a_snapshot_in_the_middle_of_memtables_keeps_what_it_sees() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let rig = Rig::create(&fs);
    let flushes = rig.hold_flushes();
    for seqno in 1..=20 {
        rig.put(seqno, if seqno % 2 == 0 { "even" } else { "odd" });
    }
    // All are applied, some are published.
    rig.visibility().publish(15);
    rig.store.cut(20);
    thread::scope(|scope| {
        let persisting = scope.spawn(|| rig.store.synchronize(&no_cut));
        thread::sleep(Duration::from_millis(30));
        assert_eq!(rig.visibility().hold(), 15);
        rig.visibility().publish(20);
        persisting.join().unwrap().unwrap();
    });
    drop(flushes);
    assert_eq!((rig.get("odd", 20), rig.get("even", 20)), (Some(19), Some(20)));
    assert_eq!((rig.get("odd", 15), rig.get("even", 15)), (Some(15), Some(14)));
    assert!(rig.visibility().release(15), "the runs are kept for it");
}

#[test]
fn a_load_that_comes_while_the_layer_changes_stays() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let fs: Arc<dyn Fs> = Arc::new(faults.clone());
    let rig = Rig::create(&fs);
    rig.put(1, "a");
    rig.visibility().publish(1);
    rig.store.cut(1);
    rig.store.persist().unwrap();
    let mut load = loaded(&rig, 2, &["b"]);
    let slow = Effect::Delay(Duration::from_millis(50));
    faults.arm(Fault { times: Times::Always, ..Fault::new(Operation::Open, slow) });
    thread::scope(|scope| {
        let changing = scope.spawn(|| rig.store.set_layer(Layer::Mmap));
        while faults.fired() == 0 {
            thread::yield_now();
        }
        load.install(1, 2);
        rig.visibility().publish(2);
        changing.join().unwrap().unwrap();
    });
    faults.disarm();
    load.wait().unwrap();
    assert_eq!((rig.get("a", 2), rig.get("b", 2)), (Some(1), Some(2)));
}

/// It was opened by the layer of before, whose page cache must not live on with it.
#[test]
fn a_load_that_is_installed_after_the_layer_has_changed_follows() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let fs: Arc<dyn Fs> = Arc::new(faults.clone());
    let rig = Rig::create(&fs);
    rig.spill(1, "a");
    let mut load = loaded(&rig, 2, &["b"]);
    rig.store.set_layer(Layer::Mmap).unwrap();
    let opened = faults.calls(Operation::Open);
    load.install(1, 2);
    rig.visibility().publish(2);
    load.wait().unwrap();
    rig.store.settle().unwrap();
    assert_eq!(faults.calls(Operation::Open), opened + 1, "it is reached as before");
    assert_eq!((rig.get("a", 2), rig.get("b", 2)), (Some(1), Some(2)));
    // What has the layer already stays as it is.
    rig.store.set_layer(Layer::Mmap).unwrap();
    assert_eq!(faults.calls(Operation::Open), opened + 1);
}

/// A function that says when it is first called, and stays there until it is told to go on.
fn gate(
    entered: mpsc::Sender<()>,
    leave: mpsc::Receiver<()>,
) -> impl Fn(&[u8], &[&[u8]]) -> Vec<u8> {
    let gate = Mutex::new(Some((entered, leave)));
    move |_: &[u8], values: &[&[u8]]| {
        if let Some((entered, leave)) = gate.lock().unwrap().take() {
            let _: (Result<_, _>, Result<(), _>) = (entered.send(()), leave.recv());
        }
        values.last().unwrap().to_vec()
    }
}

#[test]
fn a_merge_keeps_no_memtable() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let ((entered, has_entered), (go, leave)) = (mpsc::channel(), mpsc::channel());
    let rig = Rig::reducing(&fs, gate(entered, leave));
    let merges = rig.hold_merges();
    (1..=10).for_each(|seqno| rig.spill(seqno, "key"));
    drop(merges);
    rig.store.wait_for_merges().unwrap();
    has_entered.recv().unwrap();
    let memtable = rig.store.memtable();
    rig.spill(11, "other");
    let begun = Instant::now();
    while memtable.strong_count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "it stays until the merge has ended");
        thread::yield_now();
    }
    go.send(()).unwrap();
    rig.store.settle().unwrap();
    assert_eq!((rig.get("key", 11), rig.get("other", 11)), (Some(10), Some(11)));
}

#[test]
fn verify_keeps_no_memtable() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let fs: Arc<dyn Fs> = Arc::new(faults.clone());
    let rig = Rig::create(&fs);
    (1..=6).for_each(|seqno| rig.spill(seqno, "key"));
    let memtable = rig.store.memtable();
    let slow = Fault::new(Operation::Read, Effect::Delay(Duration::from_millis(100)));
    faults.arm(Fault { times: Times::Always, name_contains: ".sorted".into(), ..slow });
    let mut report = VerifyReport::default();
    let fired = thread::scope(|scope| {
        let verifying = scope.spawn(|| rig.store.verify(&mut report));
        while faults.fired() == 0 {
            thread::yield_now();
        }
        // A run takes reads of its own when it is opened.
        rig.spill(7, "other");
        while memtable.strong_count() > 0 {
            thread::yield_now();
        }
        let fired = faults.fired();
        verifying.join().unwrap();
        fired
    });
    assert!(fired < faults.fired(), "it stayed until all {fired} reads were made");
    // With the manifest.
    assert_eq!((report.files, report.problems.len()), (7, 0));
}

/// What is merged into a base for nobody would take the time, the disk and the place of what has come since.
#[test]
fn a_merge_of_what_a_clear_took_away_is_given_up() {
    const KEYS: u64 = 2000;
    for is_asked_for in [false, true] {
        let memory = MemoryFs::new();
        let fs: Arc<dyn Fs> = Arc::new(memory.clone());
        let ((entered, has_entered), (go, leave)) = (mpsc::channel(), mpsc::channel());
        let calls = Arc::new(AtomicU64::new(0));
        let (counted, function) = (Arc::clone(&calls), gate(entered, leave));
        let rig = Rig::reducing(&fs, move |key, values| {
            counted.fetch_add(1, Ordering::Relaxed);
            function(key, values)
        });
        let merges = (!is_asked_for).then(|| rig.hold_merges());
        let mut seqno = 0;
        for _ in 0..if is_asked_for { 2 } else { 10 } {
            for number in 0..KEYS {
                seqno += 1;
                rig.put(seqno, &format!("{number:04}"));
            }
            rig.visibility().publish(seqno);
            rig.store.cut(seqno);
            rig.store.persist().unwrap();
        }
        drop(merges);
        thread::scope(|scope| {
            let asked_for =
                scope.spawn(|| if is_asked_for { rig.store.synchronize(&no_cut) } else { Ok(()) });
            rig.store.wait_for_merges().unwrap();
            has_entered.recv().unwrap();
            Clear::clear(&*rig.store, seqno, seqno + 1);
            rig.visibility().publish(seqno + 1);
            go.send(()).unwrap();
            asked_for.join().unwrap().unwrap();
        });
        rig.store.settle().unwrap();
        let calls = calls.load(Ordering::Relaxed);
        assert!(calls < KEYS, "it went on to its end, asked for: {is_asked_for}");
        assert!(rig.store.trouble().is_none());
        assert_eq!(rig.store.persisted(), seqno + 1);
        let left: Vec<_> = memory.files().into_iter().map(|(path, _)| path).collect();
        let is_sorted = |path: &&PathBuf| path.to_str().unwrap().ends_with(".sorted");
        assert_eq!(left.iter().find(is_sorted), None);
        // It keeps nothing from being merged that comes behind.
        (2..=3).for_each(|more| rig.spill(seqno + more, "key"));
        rig.store.synchronize(&no_cut).unwrap();
        assert_eq!((runs(&rig), rig.get("key", seqno + 3)), (0, Some(seqno + 3)));
    }
}

/// What becomes too large keeps files apart, but memory is in files all the same when it is said.
#[test]
fn what_becomes_too_large_is_persisted_before_it_is_told() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let rig = Rig::reducing(&fs, |_, _| vec![0; MAX_VALUE_LEN + 1]);
    rig.spill(1, "key");
    let flushes = rig.hold_flushes();
    rig.put(2, "key");
    rig.put(3, "other");
    rig.visibility().publish(3);
    let cut = || {
        rig.store.cut(3);
        Ok(())
    };
    assert_eq!(rig.store.synchronize(&cut).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!((rig.store.persisted(), rig.store.oldest_unpersisted()), (3, None));
    drop(flushes);
    assert_eq!(rig.get("other", 3), Some(3));
}

/// A snapshot between runs that are merged again and again needs what the first merge has kept, and no more.
#[test]
fn a_snapshot_keeps_files_once() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let rig = Rig::create(&fs);
    // A base that is not merged with so little.
    let large = vec![7; 200_000];
    let write = Write { seqno: 1, kind: Kind::Put, key: b"large", value: &large };
    rig.store.apply_alone(&write);
    rig.visibility().publish(1);
    rig.store.cut(1);
    rig.store.persist().unwrap();
    let files = || {
        let files = memory.files();
        files.iter().filter(|(path, _)| path.to_str().unwrap().ends_with(".sorted")).count()
    };
    (2..=5).for_each(|seqno| rig.spill(seqno, "key"));
    assert_eq!(rig.visibility().hold(), 5);
    let mut last = 5;
    let mut kept = Vec::new();
    for _ in 0..4 {
        let runs_before = runs(&rig);
        for _ in runs_before..9 {
            last += 1;
            rig.spill(last, "key");
        }
        rig.store.settle().unwrap();
        kept.push(files() as u64 - runs(&rig));
    }
    // The base, and what it sees.
    assert!(kept.iter().all(|&files| files <= 1 + 9), "{kept:?}");
    assert_eq!((rig.get("key", 5), rig.get("key", last)), (Some(5), Some(last)));
    assert!(rig.visibility().release(5));
    rig.store.let_go();
    assert_eq!(files() as u64, 1 + runs(&rig));
}

/// Runs come while others are merged: none may be left in front of what has newer writes, or a newer one be hidden.
#[test]
fn spills_and_loads_go_on_while_all_is_merged() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let rig = Rig::create(&fs);
    let last = 1500;
    thread::scope(|scope| {
        let merging = scope.spawn(|| {
            while rig.store.persisted() < last {
                rig.store.compact().unwrap();
            }
        });
        for seqno in 1..=last {
            let key = format!("key {}", seqno % 10);
            if seqno % 3 == 0 {
                let mut load = loaded(&rig, seqno, &[&key]);
                load.install(seqno - 1, seqno);
                rig.visibility().publish(seqno);
            } else {
                rig.put(seqno, &key);
                rig.visibility().publish(seqno);
                rig.store.cut(seqno);
            }
            for back in 0..seqno.min(10) {
                let key = format!("key {}", (seqno - back) % 10);
                assert_eq!(rig.get(&key, seqno), Some(seqno - back));
            }
        }
        rig.store.persist().unwrap();
        merging.join().unwrap();
    });
    let killed: Arc<dyn Fs> = Arc::new(memory.fork());
    let again = Rig::open(&killed);
    for back in 0..10 {
        assert_eq!(again.get(&format!("key {}", (last - back) % 10), last), Some(last - back));
    }
}

#[test]
fn loads_wait_for_merges_that_are_behind() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let rig = Rig::create(&fs);
    let merges = rig.hold_merges();
    let runs = || rig.store.stats().skip.map_or(0, |figures| figures.runs);
    thread::scope(|scope| {
        let loading = scope.spawn(|| {
            for seqno in 1..=40 {
                let mut load = loaded(&rig, seqno, &["a", "b"]);
                load.install(seqno - 1, seqno);
                rig.visibility().publish(seqno);
                load.wait().unwrap();
            }
        });
        while runs() < 32 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert_eq!((runs(), loading.is_finished()), (32, false));
        drop(merges);
        loading.join().unwrap();
    });
    assert_eq!((rig.get("a", 40), rig.get("b", 40)), (Some(40), Some(40)));
    rig.store.settle().unwrap();
    assert!(runs() <= 8);
}

/// Who counts sees what who gets a key sees: a clear counts once it is published.
#[test]
fn a_clear_that_is_not_published_is_not_counted() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let rig = Rig::create(&fs);
    rig.put(1, "a");
    rig.put(2, "b");
    rig.visibility().publish(2);
    rig.store.cut(2);
    rig.store.persist().unwrap();
    assert_eq!(rig.store.count(), Some(2));
    let flushes = rig.hold_flushes();
    Clear::clear(&*rig.store, 2, 3);
    assert_eq!(rig.get("a", rig.visibility().published()), Some(1));
    assert!(rig.store.count().is_none_or(|count| count == 2), "{:?}", rig.store.count());
    rig.visibility().publish(3);
    assert_eq!((rig.get("a", 3), rig.store.count()), (None, Some(0)));
    drop(flushes);
    rig.store.settle().unwrap();
    assert_eq!(rig.store.count(), Some(0));
}

/// Without a log, what was persisted is in no other place than the files: a clear that comes while those are made must not have
/// them go before it is persisted itself.
#[test]
fn what_is_persisted_stays_so_when_a_clear_comes_meanwhile() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let fs: Arc<dyn Fs> = Arc::new(faults.clone());
    let rig = Rig::create(&fs);
    rig.put(1, "a");
    rig.visibility().publish(1);
    rig.store.cut(1);
    rig.store.synchronize(&no_cut).unwrap();
    rig.put(2, "a");
    rig.visibility().publish(2);
    let flushes = rig.hold_flushes();
    let slow = Effect::Delay(Duration::from_millis(100));
    faults.arm(Fault { name_contains: ".sorted".into(), ..Fault::new(Operation::Create, slow) });
    rig.store.cut(2);
    thread::scope(|scope| {
        let persisting = scope.spawn(|| rig.store.synchronize(&no_cut));
        while faults.fired() == 0 {
            thread::yield_now();
        }
        Clear::clear(&*rig.store, 2, 3);
        rig.visibility().publish(3);
        persisting.join().unwrap().unwrap();
    });
    assert!(rig.store.persisted() >= 2, "{} is persisted of 2", rig.store.persisted());
    // The process is killed before the flush thread has done anything.
    let killed: Arc<dyn Fs> = Arc::new(memory.fork());
    assert_eq!(Rig::open(&killed).get("a", 3), None, "what was before is back");
    drop(flushes);
}

/// It may come at any moment, and something be written and cut behind it.
#[test]
fn what_was_cut_is_persisted_whenever_a_clear_comes() {
    const ROUNDS: u64 = 20_000;
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let rig = Rig::create(&fs);
    let flushes = rig.hold_flushes();
    let last = Mutex::new(0);
    // As the commit lock does, one after the other.
    let write = |clears: bool| {
        let mut last = last.lock().unwrap();
        *last += 1;
        match clears {
            true => Clear::clear(&*rig.store, *last - 1, *last),
            false => {
                rig.put(*last, "a");
                rig.store.cut(*last);
            }
        }
        rig.visibility().publish(*last);
        *last
    };
    let round = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for next in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < next {
                    thread::yield_now();
                }
                (0..next * 37 % 1024).for_each(|_| hint::spin_loop());
                write(true);
                write(false);
            }
        });
        let in_vain = (1..=ROUNDS).find_map(|next| {
            let (before, cut) = (rig.store.persisted(), write(false));
            round.store(next, Ordering::Release);
            let done = rig.store.synchronize(&no_cut);
            let persisted = rig.store.persisted();
            let is_kept = done.is_ok() && persisted >= cut.max(before);
            (!is_kept).then(|| format!("round {next}: {persisted} of {cut}, {before}: {done:?}"))
        });
        // The other thread must not wait for a round that does not come.
        round.store(ROUNDS, Ordering::Release);
        assert_eq!(in_vain, None);
    });
    drop(flushes);
}

/// Makes so many runs, each of one write, whose numbers follow `before`.
fn spill_runs(rig: &Rig, before: u64, count: u64) {
    for seqno in before + 1..=before + count {
        rig.put(seqno, &format!("key {seqno}"));
        rig.visibility().publish(seqno);
        rig.store.cut(seqno);
        rig.store.persist().unwrap();
    }
}

fn runs(rig: &Rig) -> u64 {
    rig.store.stats().skip.map_or(0, |figures| figures.runs)
}

/// Waits until there are few runs, without doing anything about it.
fn wait_for_few_runs(rig: &Rig) {
    let start = Instant::now();
    while runs(rig) > 9 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} runs stay", runs(rig));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Who is to wait for merges must not wait for memtables that cannot be written: no run is merged before the manifest has it.
#[test]
fn loads_do_not_wait_for_flushes_that_are_in_trouble() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let rig = Rig::create(&fs);
    let large = vec![7; 200_000];
    let write = Write { seqno: 1, kind: Kind::Put, key: b"large", value: &large };
    rig.store.apply_alone(&write);
    rig.visibility().publish(1);
    let used: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
    memory.quota(Some(used as u64 + 100_000));
    rig.store.cut(1);
    let (sender, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        let rig = &rig;
        scope.spawn(move || {
            for seqno in 2..=60 {
                let load = || {
                    let mut load = rig.store.load()?;
                    load.push(b"key", &[1])?;
                    load.finish()?;
                    load.install(seqno - 1, seqno);
                    rig.visibility().publish(seqno);
                    load.wait()
                };
                sender.send(load()).unwrap();
            }
        });
        for seqno in 2..=60 {
            let Ok(outcome) = outcomes.recv_timeout(Duration::from_secs(20)) else {
                rig.store.stop();
                panic!("load {seqno} waits for ever");
            };
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NoSpace);
        }
    });
    memory.quota(None);
    loaded(&rig, 61, &["key"]).install(60, 61);
    rig.visibility().publish(61);
    rig.store.persist().unwrap();
    assert_eq!(rig.get("key", 61), Some(61));
}

/// Who takes the place of a merge that was due sees to it that it comes after all.
#[test]
fn a_merge_is_not_forgotten_when_persisting_fails() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let fs: Arc<dyn Fs> = Arc::new(faults.clone());
    let rig = Rig::create(&fs);
    let merges = Mutex::new(Some(rig.hold_merges()));
    spill_runs(&rig, 0, 33);
    assert_eq!(runs(&rig), 32, "the first one is the base");
    let cut = || {
        // The merge that was queued comes now, and finds its place taken.
        drop(merges.lock().unwrap().take());
        drop(rig.hold_merges());
        let full = Effect::Fail(Errno::Raw(28));
        faults
            .arm(Fault { name_contains: ".sorted".into(), ..Fault::new(Operation::Create, full) });
        Ok(())
    };
    assert_eq!(rig.store.synchronize(&cut).unwrap_err().kind(), ErrorKind::NoSpace);
    wait_for_few_runs(&rig);
}
