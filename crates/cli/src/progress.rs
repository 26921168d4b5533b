//! How far a command is, as lines on standard error, for runs that nobody watches on a terminal.
//!
//! A thread of its own looks about every second, so that whoever does the work only counts.

use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use turbidite::Keyspace;

use crate::size::{Bytes, Count, ratio};

const INTERVAL: Duration = Duration::from_secs(1);

/// Tells until it is dropped.
pub(crate) struct Progress {
    /// Nothing is ever sent: that it is gone is the message. Both are there until the drop.
    running: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Tells about every second how many records of `what` are `done`, and how far a merge of `keyspace` is if
    /// there is one.
    pub(crate) fn start(
        what: String,
        keyspace: Keyspace,
        done: impl Fn() -> u64 + Send + 'static,
    ) -> Self {
        let mut last = (Instant::now(), done());
        Self::every(INTERVAL, move || {
            let (now, records) = (Instant::now(), done());
            let seconds = (now - last.0).as_secs_f64();
            let rate = ratio(records.saturating_sub(last.1) as f64, seconds);
            last = (now, records);
            let merge = keyspace.stats().skip.map(|skip| (skip.merge_done, skip.merge_total));
            anstream::eprintln!("turbidite: {}", line(&what, records, rate, merge));
        })
    }

    fn every(interval: Duration, mut tell: impl FnMut() + Send + 'static) -> Self {
        let (running, stopped) = mpsc::channel::<Infallible>();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
        });
        Self { running: Some(running), thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            anstream::eprintln!("turbidite: note: the progress could not be told any more");
        }
    }
}

/// What is told: `merge` is how many bytes are merged, of how many.
fn line(what: &str, records: u64, rate: f64, merge: Option<(u64, u64)>) -> String {
    let mut line = format!("{what}: {} records, {} records/s", Count(records), Count(rate as u64));
    if let Some((done, total)) = merge.filter(|&(_, total)| total > 0) {
        let percent = 100.0 * ratio(done as f64, total as f64);
        line += &format!("; {} of {} merged ({percent:.0} %)", Bytes(done), Bytes(total));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_goes_on() {
        assert_eq!(line("fill", 0, 0.0, None), "fill: 0 records, 0 records/s");
        let none = line("get", 12_345, 678.9, Some((0, 0)));
        assert_eq!(none, "get: 12,345 records, 678 records/s");
        let merging = line("fill", 1000, 0.0, Some((3 << 20, 4 << 20)));
        assert_eq!(merging, "fill: 1,000 records, 0 records/s; 3.00 MiB of 4.00 MiB merged (75 %)");
    }

    #[test]
    fn it_tells_until_it_is_dropped() {
        let (told, heard) = mpsc::channel();
        let progress = Progress::every(Duration::from_millis(1), move || {
            told.send(()).expect("the test listens");
        });
        heard.recv().unwrap();
        heard.recv().unwrap();
        drop(progress);
        while heard.try_recv().is_ok() {}
        assert_eq!(heard.try_recv(), Err(mpsc::TryRecvError::Disconnected), "the thread is gone");
        drop(Progress::every(Duration::from_secs(3600), || unreachable!()));
    }
}
