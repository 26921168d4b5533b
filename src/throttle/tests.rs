//! What is granted, by a clock of its own; debt; who waits is let go at a stop and by debt.

use std::io::IoSlice;
use std::path::Path;
use std::thread;

use super::*;
use crate::vfs::{Fs, Layer, MemoryFs};

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A bucket that has granted what it may at the first second.
fn bucket() -> Bucket {
    let mut bucket = Bucket::default();
    bucket.grant(at(1000), Some(1000.0));
    bucket
}

#[test]
fn writes_go_one_after_the_other_at_the_rate() {
    let (mut bucket, limit) = (bucket(), Some(1000.0));
    // What was not used in a second is a tenth of one.
    assert_eq!(bucket.granted, 100.0);
    let tickets = [50, 50, 50, 400, 10].map(|bytes| bucket.take(bytes));
    assert_eq!(tickets, [0.0, 50.0, 100.0, 150.0, 550.0]);
    let waits = |bucket: &Bucket| tickets.map(|ticket| bucket.wait(ticket, limit));
    let soon = Duration::from_micros(1);
    assert_eq!(waits(&bucket), [None, None, None, Some(at(50) + soon), Some(at(450) + soon)]);
    bucket.grant(at(1050), limit);
    assert_eq!(waits(&bucket)[3..], [None, Some(at(400) + soon)]);
    // Time does not go back.
    bucket.grant(at(10), limit);
    assert_eq!(waits(&bucket)[3..], [None, Some(at(400) + soon)]);
    bucket.grant(at(1450), limit);
    assert_eq!(waits(&bucket), [None; 5]);
}

#[test]
fn over_a_long_time_it_is_the_rate() {
    let (mut bucket, limit, mut now) = (Bucket::default(), Some(1e6), Duration::ZERO);
    for write in 0..10_000 {
        bucket.grant(now, limit);
        let ticket = bucket.take(if write % 7 == 0 { 300_000 } else { 64_000 });
        now += bucket.wait(ticket, limit).unwrap_or_default();
        // It takes a while, too.
        now += Duration::from_micros(50);
    }
    let rate = bucket.taken / now.as_secs_f64();
    assert!((rate / 1e6 - 1.0).abs() < 0.001, "{rate}");
}

#[test]
fn without_a_limit_all_is_granted() {
    let mut bucket = bucket();
    let first = bucket.take(1_000_000);
    let second = bucket.take(1_000_000);
    assert!(bucket.wait(first, Some(1000.0)).is_none());
    assert!(bucket.wait(second, Some(1000.0)).is_some());
    bucket.grant(at(1000), None);
    assert!(bucket.wait(second, Some(1000.0)).is_none());
    // Nothing of that is owed when there is one again.
    assert_eq!(bucket.granted, bucket.taken);
}

#[test]
fn the_limit_rises_with_the_largest_debt_until_there_is_none() {
    let throttle = Arc::new(Throttle::new(Some(1000)));
    let limit = || throttle.lock().limit(throttle.rate);
    let (one, other) = (throttle.valve(), throttle.valve());
    for (debt, expected) in
        [(0, 1000.0), (500, 1000.0), (750, 2000.0), (900, 5000.0), (999, 500_000.0)]
    {
        one.set_debt(debt);
        assert_eq!(limit(), Some(expected));
    }
    other.set_debt(FULL);
    assert_eq!(limit(), None);
    drop(other);
    assert_eq!(limit(), Some(500_000.0));
    one.set_debt(0);
    assert!(throttle.lock().debts.is_empty());
    assert_eq!(limit(), Some(1000.0));
}

#[test]
fn who_waits_goes_when_writers_would_be_slowed_down_and_at_a_stop() {
    // A byte a second: nobody comes through in the lifetime of this test.
    let throttle = Arc::new(Throttle::new(Some(1)));
    let (one, other) = (throttle.valve(), throttle.valve());
    one.pass(1 << 30);
    let waits = |valve: &Arc<Valve>| {
        let valve = Arc::clone(valve);
        let taken = throttle.lock().bucket.taken;
        let waits = thread::spawn(move || valve.pass(1 << 20));
        while throttle.lock().bucket.taken == taken {
            thread::yield_now();
        }
        waits
    };
    let (first, second) = (waits(&one), waits(&other));
    thread::sleep(Duration::from_millis(10));
    assert!(!first.is_finished() && !second.is_finished());
    one.stop();
    first.join().unwrap();
    assert!(!second.is_finished(), "the other engine goes on");
    one.pass(1 << 30);
    one.set_debt(FULL);
    second.join().unwrap();
}

#[test]
fn what_is_not_limited_stays_as_it_is() {
    let file = MemoryFs::new().create(Path::new("a"), Layer::default()).unwrap();
    let free = Arc::new(Throttle::new(None)).valve();
    assert!(Arc::ptr_eq(&free.over(Arc::clone(&file)), &file));
    free.pass(usize::MAX);
    let throttle = Arc::new(Throttle::new(Some(1 << 40)));
    let limited = throttle.valve().over(Arc::clone(&file));
    limited.write_at(0, b"one").unwrap();
    limited.write_vectored_at(3, &[IoSlice::new(b"two"), IoSlice::new(b"three")]).unwrap();
    assert_eq!(throttle.lock().bucket.taken, 11.0);
    let mut bytes = [0; 11];
    file.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"onetwothree");
}
