//! What goes first; threads that help; panics and stops.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;

use super::*;

/// Which engines' jobs are pressing.
#[derive(Default)]
struct Pressing([Arc<AtomicBool>; 3]);

impl Pressing {
    fn set(&self, engine: usize) {
        self.0[engine].store(true, Ordering::Relaxed);
    }

    fn job(&self, engine: usize) -> Waiting<usize> {
        Waiting { is_pressing: Arc::clone(&self.0[engine]), job: engine }
    }

    /// A queue in which jobs are the numbers of their engines.
    fn queue(&self, engines: &[usize]) -> Queue<usize> {
        let waiting = engines.iter().map(|&engine| self.job(engine)).collect();
        Queue { waiting, ..Queue::default() }
    }
}

#[test]
fn what_is_pressing_goes_first_and_the_rest_in_the_order_it_came() {
    let pressing = Pressing::default();
    let mut waiting = pressing.queue(&[0, 1, 2, 1, 0]);
    pressing.set(2);
    assert_eq!(waiting.take(), Some(2));
    // It may become pressing while it waits.
    pressing.set(1);
    let rest: Vec<_> = std::iter::from_fn(|| waiting.take()).collect();
    assert_eq!(rest, [1, 1, 0, 0]);
}

#[test]
fn nobody_is_passed_over_for_good() {
    let pressing = Pressing::default();
    pressing.set(0);
    pressing.set(1);
    let mut waiting = pressing.queue(&[2, 0, 1]);
    let mut taken = Vec::new();
    // All have more to do as soon as they have begun.
    for _ in 0..3 * (PATIENCE + 1) {
        let engine = waiting.take().unwrap();
        taken.push(engine);
        waiting.waiting.push_back(pressing.job(engine));
    }
    let count = |engine| taken.iter().filter(|&&other| other == engine).count();
    assert_eq!([count(0), count(1), count(2)], [12, 12, 3], "{taken:?}");
    let urgent: Vec<_> = taken.iter().filter(|&&engine| engine != 2).collect();
    assert!(urgent.windows(2).all(|pair| pair[0] != pair[1]), "they take turns: {taken:?}");
}

fn workers(count: usize) -> (Arc<Workers>, Arc<Mutex<Vec<String>>>) {
    let panics = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&panics);
    let on_panic = move |text: &str| seen.lock().unwrap().push(text.to_owned());
    (Arc::new(Workers::start("test", count, on_panic).unwrap()), panics)
}

#[test]
fn runs_jobs_survives_panics_and_stops() {
    let count = Arc::new(AtomicUsize::new(0));
    let (workers, panics) = workers(2);
    let (done, all) = channel();
    let pressing = Arc::<AtomicBool>::default();
    workers.submit(&pressing, || panic!("on purpose"));
    for _ in 0..10 {
        let (count, done) = (Arc::clone(&count), done.clone());
        workers.submit(&pressing, move || {
            count.fetch_add(1, Ordering::Relaxed);
            done.send(()).unwrap();
        });
    }
    assert_eq!(all.iter().take(10).count(), 10);
    workers.stop();
    workers.submit(&pressing, || unreachable!("submitted after the stop"));
    assert_eq!(count.load(Ordering::Relaxed), 10);
    assert_eq!(*panics.lock().unwrap(), ["on purpose"]);
}

#[test]
fn who_waits_lends_its_thread_to_its_own_group() {
    let ((workers, panics), (others, _)) = (workers(1), workers(1));
    assert!(!workers.help(), "this is no worker");
    let (done, ends) = channel();
    let pressing = Arc::<AtomicBool>::default();
    let helped = Arc::clone(&workers);
    workers.submit(&pressing.clone(), move || {
        helped.submit(&pressing, || panic!("inside"));
        let depths = Arc::<Mutex<Vec<u32>>>::default();
        submit_nested(&helped, &depths);
        assert!(!others.help());
        while helped.help() {}
        done.send(depths.lock().unwrap().clone()).unwrap();
    });
    assert_eq!(ends.recv().unwrap(), (2..=DEPTH).collect::<Vec<_>>());
    assert_eq!(*panics.lock().unwrap(), ["inside"]);
    workers.stop();
}

/// Submits a job that submits another one, and helps with that.
fn submit_nested(workers: &Arc<Workers>, depths: &Arc<Mutex<Vec<u32>>>) {
    let (inner, seen) = (Arc::clone(workers), Arc::clone(depths));
    workers.submit(&Arc::default(), move || {
        let (_, depth) = ROLE.get().unwrap();
        seen.lock().unwrap().push(depth);
        if depth < DEPTH {
            submit_nested(&inner, &seen);
            assert!(inner.help());
        } else {
            assert!(!inner.help());
        }
    });
}
