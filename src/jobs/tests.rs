//! Trying again and giving up; who hears of trouble; one job of a kind at a time; panics and stops.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use super::*;
use crate::base::Seqno;
use crate::contract::testing::background;

/// Longer than any test takes that is not stuck.
const LONG: Duration = Duration::from_secs(600);

/// Remembers what it is told.
#[derive(Default)]
struct Told {
    troubles: Mutex<Vec<Option<ErrorKind>>>,
    /// What is done first when something is told the next time.
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    poisoned: AtomicUsize,
}

impl Host for Told {
    fn sync_log(&self, _: Seqno) -> Result<()> {
        unreachable!("the engine does that")
    }
    fn persisted(&self) {
        unreachable!("the engine does that")
    }
    fn trouble(&self, trouble: Option<Error>) {
        let first = self.first.lock().unwrap().take();
        first.into_iter().for_each(|first| first());
        self.troubles.lock().unwrap().push(trouble.map(|error| error.kind()));
    }
    fn poison(&self, _: &Error) {
        self.poisoned.fetch_add(1, Ordering::Relaxed);
    }
    fn check_poison(&self) -> Result<()> {
        let is_poisoned = self.poisoned.load(Ordering::Relaxed) > 0;
        if is_poisoned { Err(ended_by_a_panic()) } else { Ok(()) }
    }
}

struct Engine {
    jobs: Jobs,
    host: Arc<Told>,
    /// How many jobs have run.
    ran: AtomicUsize,
    this: Weak<Self>,
}

impl Engine {
    fn new() -> Arc<Self> {
        Self::with(false)
    }

    fn with(read_only: bool) -> Arc<Self> {
        let background = background(|_| {});
        let valve = background.throttle.valve();
        let host = Arc::<Told>::default();
        Arc::new_cyclic(|this| Self {
            jobs: Jobs {
                dir: PathBuf::from("test"),
                host: Arc::clone(&host) as Arc<dyn Host>,
                background: Arc::new(background),
                valve,
                read_only,
                upkeep: 1,
                is_pressing: Arc::default(),
                status: Mutex::default(),
                changed: Condvar::new(),
                stopping: AtomicBool::new(false),
            },
            host,
            ran: AtomicUsize::new(0),
            this: Weak::clone(this),
        })
    }

    fn schedule(&self, work: Work, job: impl FnOnce(&Self) + Send + 'static) {
        self.jobs.schedule(work, &self.this, move |engine: &Self| {
            let Some(_running) = engine.jobs.begin(work) else { return };
            engine.ran.fetch_add(1, Ordering::Relaxed);
            job(engine);
        });
    }

    /// Schedules upkeep that begins it itself.
    fn schedule_work(&self, job: impl FnOnce(&Self) + Send + 'static) {
        self.jobs.schedule(Work::Upkeep, &self.this, job);
    }

    fn ran(&self) -> usize {
        self.ran.load(Ordering::Relaxed)
    }

    /// Begins a job and runs `tries`, one after the other, until it ends.
    fn run(&self, work: Work, tries: &[Result<()>]) -> Option<()> {
        let tried = AtomicUsize::new(0);
        let running = self.jobs.begin(work).unwrap();
        let outcome = running.persistently(|| tries[tried.fetch_add(1, Ordering::Relaxed)].clone());
        assert_eq!(tried.into_inner(), tries.len());
        outcome
    }

    fn told(&self) -> Vec<Option<ErrorKind>> {
        std::mem::take(&mut self.host.troubles.lock().unwrap())
    }

    fn wait_for_idle(&self) {
        self.jobs.wait_until(Status::is_idle, &[]).unwrap();
    }
}

fn no_space() -> Error {
    let source = Arc::new(std::io::ErrorKind::StorageFull.into());
    Error::NoSpace { file: PathBuf::from("full"), source }
}

fn corruption() -> Error {
    Error::corruption("damaged".as_ref(), 0, "on purpose")
}

#[test]
fn a_failed_job_is_tried_again_after_pauses_that_grow() {
    let engine = Engine::new();
    let started = Instant::now();
    let tries = [Err(no_space()), Err(no_space()), Err(no_space()), Ok(())];
    assert_eq!(engine.run(Work::Flush, &tries), Some(()));
    assert!(started.elapsed() >= 7 * FIRST_PAUSE);
    assert!(engine.jobs.trouble().is_none());
    let trouble = Some(ErrorKind::NoSpace);
    assert_eq!(engine.told(), [trouble, trouble, trouble, None]);
    // Success after success is no news.
    assert_eq!(engine.run(Work::Flush, &[Ok(())]), Some(()));
    assert_eq!(engine.told(), []);
}

#[test]
fn what_trying_again_does_not_mend_is_given_up() {
    let poisoned = Error::Poisoned { cause: "on purpose".into() };
    for error in [corruption(), poisoned, Error::Closed] {
        let (engine, kind) = (Engine::new(), error.kind());
        // Memory waits for flushes: the host is told of those.
        for (work, told) in [(Work::Upkeep, vec![]), (Work::Flush, vec![Some(kind)])] {
            assert_eq!(engine.run(work, &[Err(error.clone())]), None);
            assert!(engine.jobs.is_idle());
            assert_eq!(engine.jobs.trouble_of(work).unwrap().kind(), kind);
            assert_eq!(engine.told(), told);
            engine.jobs.forget_trouble(work);
            assert!(engine.jobs.trouble().is_none());
            assert_eq!(engine.told(), vec![None; told.len()]);
        }
    }
}

#[test]
fn what_a_try_found_before_trouble_was_forgotten_is_not_told() {
    let engine = Engine::new();
    let tries = AtomicUsize::new(0);
    let running = engine.jobs.begin(Work::Flush).unwrap();
    let outcome = running.persistently(|| {
        if tries.fetch_add(1, Ordering::Relaxed) == 0 {
            // Somebody has made room, and waits.
            engine.jobs.forget_trouble(Work::Flush);
            return Err(no_space());
        }
        Ok(())
    });
    assert_eq!((outcome, tries.into_inner()), (Some(()), 2));
    assert_eq!(engine.told(), []);
}

#[test]
fn what_is_told_last_is_what_there_is() {
    let engine = Engine::new();
    let (telling, told) = channel();
    let (forgotten, may_go_on) = channel();
    // Takes as long as somebody needs to forget the trouble meanwhile, if they can.
    *engine.host.first.lock().unwrap() = Some(Box::new(move || {
        telling.send(()).unwrap();
        let _ = may_go_on.recv_timeout(Duration::from_millis(300));
    }));
    thread::scope(|scope| {
        let jobs = &engine.jobs;
        scope.spawn(move || {
            told.recv().unwrap();
            jobs.forget_trouble(Work::Flush);
            let _ = forgotten.send(());
        });
        assert_eq!(engine.run(Work::Flush, &[Err(no_space()), Ok(())]), Some(()));
    });
    assert!(engine.jobs.trouble().is_none());
    assert_eq!(engine.told(), [Some(ErrorKind::NoSpace), None]);
}

#[test]
fn each_kind_has_trouble_of_its_own() {
    let engine = Engine::new();
    let jobs = &engine.jobs;
    engine.run(Work::Upkeep, &[Err(corruption())]);
    assert!(jobs.trouble_of(Work::Flush).is_none());
    assert_eq!(engine.run(Work::Flush, &[Err(no_space()), Ok(())]), Some(()));
    assert_eq!(engine.told(), [Some(ErrorKind::NoSpace), None]);
    assert_eq!(jobs.trouble().unwrap().kind(), ErrorKind::Corruption);
    let never = |_: &Status| false;
    let error = jobs.wait_until(never, &[Work::Flush, Work::Upkeep]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    // Nobody is at it: there is nothing to wait for.
    drop(jobs.take_over(Work::Upkeep, &[Work::Upkeep]).unwrap());
    let _running = jobs.begin(Work::Upkeep).unwrap();
    let error = jobs.take_over(Work::Upkeep, &[Work::Upkeep]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn those_who_wait_learn_of_trouble_and_of_success() {
    let engine = Engine::new();
    let jobs = &engine.jobs;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = jobs.begin(Work::Flush).unwrap();
        let wait = |works: &'static [Work]| {
            scope.spawn(|| jobs.wait_until(|_| done.load(Ordering::Relaxed), works))
        };
        let (heeds, heeds_not) = (wait(&[Work::Flush]), wait(&[Work::Upkeep]));
        jobs.report(&running, Some(no_space()), 0);
        assert_eq!(heeds.join().unwrap().unwrap_err().kind(), ErrorKind::NoSpace);
        done.store(true, Ordering::Relaxed);
        jobs.notify();
        heeds_not.join().unwrap().unwrap();
        drop(running);
    });
}

#[test]
fn one_job_of_a_kind_at_a_time() {
    let engine = Engine::new();
    let (go, gate) = channel();
    engine.schedule(Work::Upkeep, move |_| gate.recv().unwrap());
    for _ in 0..3 {
        engine.schedule(Work::Upkeep, |_| {});
    }
    // The other kind is not in the way.
    engine.schedule(Work::Flush, |_| {});
    engine.jobs.wait_until(|status| status.flush.is_free() && !status.flush.queued, &[]).unwrap();
    assert!(!engine.jobs.is_idle());
    go.send(()).unwrap();
    engine.wait_for_idle();
    assert_eq!(engine.ran(), 2);
    engine.schedule(Work::Upkeep, |_| {});
    engine.wait_for_idle();
    assert_eq!(engine.ran(), 3);
}

#[test]
fn upkeep_may_be_done_by_several_jobs_and_by_one_caller() {
    let engine = Engine::new();
    let jobs = Arc::into_inner(engine).expect("nobody else has it").jobs.with_upkeep(2);
    let first = jobs.begin(Work::Upkeep).unwrap();
    let second = jobs.begin(Work::Upkeep).unwrap();
    assert!(jobs.begin(Work::Upkeep).is_none(), "one too many");
    // A job's success says nothing of the other one.
    jobs.report(&first, Some(no_space()), 0);
    jobs.report(&second, None, 0);
    assert_eq!(jobs.trouble().unwrap().kind(), ErrorKind::NoSpace);
    // Who has given up is followed by others.
    drop(first);
    jobs.report(&second, None, 0);
    assert!(jobs.trouble().is_none());
    thread::scope(|scope| {
        let called = scope.spawn(|| jobs.take_over(Work::Upkeep, &[]).map(drop));
        while jobs.lock().upkeep.waiting == 0 {
            thread::yield_now();
        }
        assert!(jobs.begin(Work::Upkeep).is_none(), "a caller waits");
        assert!(!called.is_finished());
        drop(second);
        called.join().unwrap().unwrap();
    });
    assert!(jobs.is_idle() && jobs.begin(Work::Upkeep).is_some());
}

#[test]
fn a_caller_takes_over_what_is_queued_and_not_what_runs() {
    let engine = Engine::new();
    let jobs = &engine.jobs;
    let (go, gate) = channel();
    jobs.background.compaction.submit(&Arc::default(), move || gate.recv().unwrap());
    engine.schedule(Work::Upkeep, |_| unreachable!("a caller does it"));
    let called = jobs.take_over(Work::Upkeep, &[]).unwrap();
    let (done, all) = channel();
    jobs.background.compaction.submit(&Arc::default(), move || done.send(()).unwrap());
    go.send(()).unwrap();
    all.recv().unwrap();
    assert_eq!(engine.ran(), 0);
    drop(called);
    assert!(jobs.is_idle());

    let running = jobs.begin(Work::Upkeep).unwrap();
    thread::scope(|scope| {
        let called = scope.spawn(|| jobs.take_over(Work::Upkeep, &[]).map(drop));
        thread::sleep(FIRST_PAUSE);
        assert!(!called.is_finished());
        drop(running);
        called.join().unwrap().unwrap();
    });
}

#[test]
fn a_panic_ends_the_job() {
    let engine = Engine::new();
    engine.schedule(Work::Flush, |_| panic!("on purpose"));
    engine.wait_for_idle();
    let waited = engine.jobs.wait_until(|_| false, &[Work::Flush]);
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Poisoned, "it is not waited for for ever");
    engine.jobs.forget_trouble(Work::Flush);
    for work in [Work::Flush, Work::Upkeep] {
        engine.schedule(work, |_| unreachable!("nobody knows what there is"));
        assert_eq!(engine.jobs.trouble_of(work).unwrap().kind(), ErrorKind::Poisoned);
        assert!(engine.jobs.begin(work).is_none());
        let called = engine.jobs.take_over(work, &[]).map(drop);
        assert_eq!(called.unwrap_err().kind(), ErrorKind::Poisoned);
    }
    engine.wait_for_idle();
    assert_eq!(engine.ran(), 1);
    assert_eq!(engine.host.poisoned.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_in_a_callers_thread_ends_the_job_and_poisons() {
    let engine = Engine::new();
    let call = || {
        let _running = engine.jobs.take_over(Work::Upkeep, &[]).unwrap();
        panic!("on purpose");
    };
    assert!(thread::scope(|scope| scope.spawn(call).join()).is_err());
    assert_eq!(engine.host.poisoned.load(Ordering::Relaxed), 1);
    let waited = engine.jobs.wait_until(|_| false, &[Work::Upkeep]);
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Poisoned, "it is not waited for for ever");
    assert!(engine.jobs.is_idle());
}

#[test]
fn a_job_that_goes_well_while_its_thread_unwinds_is_no_panic() {
    struct Late<'a>(&'a Jobs);
    impl Drop for Late<'_> {
        fn drop(&mut self) {
            drop(self.0.take_over(Work::Upkeep, &[]).unwrap());
        }
    }
    let engine = Engine::new();
    let call = || {
        let _late = Late(&engine.jobs);
        panic!("on purpose");
    };
    assert!(thread::scope(|scope| scope.spawn(call).join()).is_err());
    assert_eq!(engine.host.poisoned.load(Ordering::Relaxed), 0);
    assert!(engine.jobs.trouble().is_none() && engine.jobs.is_idle());
}

#[test]
fn a_job_that_fails_does_not_keep_its_thread_from_others() {
    let engine = Engine::new();
    let (told, outcome) = channel();
    engine.schedule_work(move |engine| {
        let running = engine.jobs.begin(Work::Upkeep).unwrap();
        let (tries, other) = (AtomicUsize::new(0), Arc::<AtomicBool>::default());
        let done = running.persistently(|| {
            if tries.fetch_add(1, Ordering::Relaxed) > 0 {
                return Ok(other.load(Ordering::Relaxed));
            }
            // Another engine has something to do, and there is only this thread.
            let ran = Arc::clone(&other);
            let job = move || ran.store(true, Ordering::Relaxed);
            engine.jobs.background.compaction.submit(&Arc::default(), job);
            Err(no_space())
        });
        told.send(done).unwrap();
    });
    assert_eq!(outcome.recv().unwrap(), Some(true));
    engine.wait_for_idle();
}

#[test]
fn a_stop_wakes_all_who_wait_and_ends_tries() {
    let engine = Engine::new();
    let jobs = &engine.jobs;
    thread::scope(|scope| {
        let running = jobs.begin(Work::Flush).unwrap();
        let waits = scope.spawn(|| jobs.wait_until(|_| false, &[Work::Upkeep]));
        let wants = scope.spawn(|| jobs.take_over(Work::Flush, &[]).map(drop));
        let pauses = scope.spawn(|| jobs.wait_a_while(LONG));
        let tries = scope.spawn(move || running.persistently(|| Err::<(), _>(no_space())));
        thread::sleep(FIRST_PAUSE);
        assert!(!waits.is_finished() && !wants.is_finished() && !pauses.is_finished());
        jobs.stop();
        assert_eq!(waits.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(wants.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        pauses.join().unwrap();
        assert_eq!(tries.join().unwrap(), None);
    });
    assert_eq!(jobs.stop_if_told().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(jobs.take_over(Work::Upkeep, &[]).err().unwrap().kind(), ErrorKind::Closed);
    engine.schedule(Work::Upkeep, |_| unreachable!("the engine has stopped"));
    assert!(!jobs.lock().upkeep.queued);
}

#[test]
fn a_stop_waits_for_callers_and_not_for_the_background() {
    let engine = Engine::new();
    let jobs = &engine.jobs;
    let _running = jobs.begin(Work::Flush).unwrap();
    let called = jobs.take_over(Work::Upkeep, &[]).unwrap();
    thread::scope(|scope| {
        let stop = scope.spawn(|| jobs.stop());
        while !jobs.is_stopping() {
            thread::yield_now();
        }
        thread::sleep(FIRST_PAUSE);
        assert!(!stop.is_finished());
        drop(called);
        stop.join().unwrap();
    });
}

#[test]
fn nothing_runs_for_readers() {
    let engine = Engine::with(true);
    engine.schedule(Work::Flush, |_| unreachable!("the files must not change"));
    assert!(engine.jobs.is_idle());
}
