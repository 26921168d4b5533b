//! Orders that seeds decide, waits, the clock, deadlocks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::super::{Condvar, Mutex, now, thread};
use super::{is_small, much, run};

fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().name("simulated".into()).spawn(work).unwrap()
}

/// The order in which three threads come to a lock, again and again.
fn order(seed: u64) -> Vec<u32> {
    run(seed, || {
        let seen = Arc::<Mutex<Vec<u32>>>::default();
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let seen = Arc::clone(&seen);
                start(move || (0..20).for_each(|_| seen.lock().unwrap().push(number)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let seen = seen.lock().unwrap();
        seen.clone()
    })
}

#[test]
fn a_seed_is_an_order() {
    let orders: Vec<_> = (0..20).map(order).collect();
    assert_eq!(orders, (0..20).map(order).collect::<Vec<_>>());
    let mut different = orders.clone();
    different.sort();
    different.dedup();
    assert!(different.len() > 10, "{}", different.len());
    for order in orders {
        for number in 0..3 {
            assert_eq!(order.iter().filter(|&&other| other == number).count(), 20);
        }
    }
}

#[test]
fn time_passes_when_all_wait() {
    for seed in 0..20 {
        run(seed, || {
            let (hour, start_of_all) = (Duration::from_secs(3600), now());
            let sleeper = start(move || {
                thread::sleep(hour);
                now()
            });
            let state = (Mutex::new(()), Condvar::new());
            let (_, result) = state.1.wait_timeout(state.0.lock().unwrap(), hour / 2).unwrap();
            assert!(result.timed_out());
            assert!((hour / 2..hour).contains(&(now() - start_of_all)));
            assert!(sleeper.join().unwrap() - start_of_all >= hour);
        });
    }
}

#[test]
fn who_waits_goes_on_when_told() {
    for seed in 0..50 {
        let sum = run(seed, || {
            // How many have been given out, and taken.
            let state = Arc::new((Mutex::new((0, 0)), Condvar::new()));
            let takers: Vec<_> = (0..3)
                .map(|_| {
                    let state = Arc::clone(&state);
                    start(move || {
                        let none = |(given, taken): &mut (i32, i32)| given == taken;
                        state.1.wait_while(state.0.lock().unwrap(), none).unwrap().1 += 1;
                        thread::park();
                    })
                })
                .collect();
            for _ in 0..3 {
                state.0.lock().unwrap().0 += 1;
                state.1.notify_one();
            }
            for taker in takers {
                taker.thread().unpark();
                taker.join().unwrap();
            }
            let state = state.0.lock().unwrap();
            *state
        });
        assert_eq!(sum, (3, 3));
    }
}

#[test]
fn a_deadlock_is_told() {
    let waits_for_ever = || {
        let (mutex, condition) = (Mutex::new(()), Condvar::new());
        drop(condition.wait(mutex.lock().unwrap()));
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| run(1, waits_for_ever)));
    let text = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("deadlock"), "{text}");
}

#[test]
fn locks_taken_crosswise_are_a_deadlock_and_long_waits_for_them_are_none() {
    let held_for = |time: Duration| {
        run(3, move || {
            let mutex = Arc::new(Mutex::new(()));
            let held = mutex.lock().unwrap();
            let waiter = {
                let mutex = Arc::clone(&mutex);
                start(move || drop(mutex.lock().unwrap()))
            };
            thread::sleep(time);
            drop(held);
            waiter.join().unwrap();
        });
    };
    held_for(Duration::from_secs(3600));
    let crosswise = || {
        let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
        let threads = [(0, 1), (1, 0)].map(|(one, other)| {
            let locks = Arc::clone(&locks);
            start(move || {
                for _ in 0..100 {
                    let _one = locks[one].lock().unwrap();
                    let _other = locks[other].lock().unwrap();
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    };
    let deadlocks = (0..20).filter(|&seed| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, crosswise)));
        outcome.is_err_and(|error| error.downcast::<String>().unwrap().contains("deadlock"))
    });
    assert!(deadlocks.count() > 10);
}

#[test]
fn who_waits_for_a_lock_has_its_turn_while_others_are_busy() {
    run(7, || {
        let turns = Arc::new((Mutex::new(false), Mutex::new(0_u32)));
        let busy = {
            let turns = Arc::clone(&turns);
            start(move || {
                while !*turns.0.lock().unwrap() {
                    *turns.1.lock().unwrap() += 1;
                }
            })
        };
        let waiter = {
            let turns = Arc::clone(&turns);
            start(move || (0..50).for_each(|_| *turns.1.lock().unwrap() += 1))
        };
        waiter.join().unwrap();
        *turns.0.lock().unwrap() = true;
        busy.join().unwrap();
    });
}

#[test]
fn little_is_much_in_half_of_the_simulations_for_all_of_their_threads() {
    assert_eq!(much(1000, 1), 1000, "there is no simulation here");
    let seen: Vec<_> = (0..100)
        .map(|seed| run(seed, || [much(1000, 1), start(|| much(1000, 1)).join().unwrap()]))
        .collect();
    for (seed, seen) in (0..).zip(&seen) {
        assert_eq!(*seen, if is_small(seed) { [1, 1] } else { [1000, 1000] }, "{seed}");
    }
    let small = seen.iter().filter(|&&seen| seen == [1, 1]).count();
    assert!((30..=70).contains(&small), "{small} of 100 are small");
}
