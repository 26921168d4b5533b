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

/// Submits a job that runs until the sender it is given back is dropped, and waits until it has begun.
fn submit_long(workers: &Workers) -> std::sync::mpsc::Sender<()> {
    let (goes_on, until) = channel::<()>();
    let (begins, begun) = channel();
    workers.submit(&Arc::default(), move || {
        begins.send(()).unwrap();
        until.recv().unwrap_err();
    });
    begun.recv().unwrap();
    goes_on
}

#[test]
fn while_a_job_stands_aside_another_thread_runs_what_waits() {
    let ((workers, panics), (others, _)) = (workers(1), workers(1));
    assert!(workers.step_aside().is_none(), "this is no worker");
    let (done, ends) = channel();
    let stood = Arc::clone(&workers);
    workers.submit(&Arc::default(), move || {
        assert!(others.step_aside().is_none(), "it is none of them");
        stood.submit(&Arc::default(), || panic!("beside"));
        let aside = stood.step_aside().unwrap();
        // More than one, each of which begins only if the one before has not the only thread.
        let long = submit_long(&stood);
        drop(aside);
        // It does not wait for what runs in its place.
        done.send(long).unwrap();
    });
    let long = ends.recv().unwrap();
    assert_eq!(*panics.lock().unwrap(), ["beside"]);
    drop(long);
    // And then there is one thread again.
    while workers.shared.lock().threads > 1 {
        std::thread::yield_now();
    }
    drop(submit_long(&workers));
    workers.stop();
}

#[test]
fn so_many_may_stand_aside_and_no_more() {
    let (workers, _) = workers(2);
    let (begins, begun) = channel();
    let (goes_on, all_go_on) = channel::<()>();
    let all_go_on = Arc::new(Mutex::new(all_go_on));
    for _ in 0..MOST_ASIDE + 2 {
        let (stood, begins, until) = (Arc::clone(&workers), begins.clone(), Arc::clone(&all_go_on));
        workers.submit(&Arc::default(), move || {
            let aside = stood.step_aside();
            begins.send(aside.is_some()).unwrap();
            until.lock().unwrap().recv().unwrap_err();
        });
    }
    let stand: Vec<bool> = begun.iter().take(MOST_ASIDE + 2).collect();
    assert_eq!(stand.iter().filter(|&&stands| stands).count(), MOST_ASIDE);
    assert_eq!(workers.shared.lock().threads, MOST_ASIDE + 2);
    drop(goes_on);
    while workers.shared.lock().threads > 2 {
        std::thread::yield_now();
    }
    workers.stop();
    assert!(workers.threads.lock().unwrap().is_empty());
}

#[test]
fn the_stop_waits_for_those_that_stand_in() {
    let (workers, _) = workers(1);
    let (goes_on, until) = channel::<()>();
    let (begins, begun) = channel();
    let count = Arc::new(AtomicUsize::new(0));
    let (stood, counted) = (Arc::clone(&workers), Arc::clone(&count));
    workers.submit(&Arc::default(), move || {
        let counted_inside = Arc::clone(&counted);
        stood.submit(&Arc::default(), move || {
            begins.send(()).unwrap();
            until.recv().unwrap_err();
            counted_inside.fetch_add(1, Ordering::Relaxed);
        });
        let aside = stood.step_aside();
        assert!(aside.is_some());
        while !stood.shared.lock().stopping {
            std::thread::yield_now();
        }
        drop(aside);
        assert!(stood.step_aside().is_none(), "at the stop");
        counted.fetch_add(1, Ordering::Relaxed);
    });
    begun.recv().unwrap();
    let stopper = {
        let workers = Arc::clone(&workers);
        std::thread::spawn(move || workers.stop())
    };
    while !workers.shared.lock().stopping {
        std::thread::yield_now();
    }
    drop(goes_on);
    stopper.join().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 2);
}
