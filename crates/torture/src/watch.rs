//! A watch over cases that hang. A thread that hangs cannot be ended in another way than with its process, so that is what it comes to.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::report::Violation;

/// A case that takes longer than this hangs, unless [`on_hang`] says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked whether one does.
const INTERVAL: Duration = Duration::from_millis(20);

type Tell = Box<dyn FnOnce(Violation) + Send>;

/// No more than this counts of the time between two looks: a process that was stopped meanwhile has not hung.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// A case that is tried, and how long the watch had been kept when it was begun.
type UnderWay = (Duration, Box<dyn Display + Send>);

struct Watch {
    patience: Duration,
    tell: Option<Tell>,
    /// By number, in the order they were begun.
    cases: BTreeMap<u64, UnderWay>,
    next: u64,
    /// How long it has been kept.
    kept: Duration,
}

impl Watch {
    /// Takes note that the last look was so long ago.
    fn look_after(&mut self, interval: Duration) {
        self.kept += interval.min(LONGEST_INTERVAL);
    }

    /// How long the oldest case has taken, and which one it is.
    fn oldest(&self) -> Option<(Duration, &(dyn Display + Send))> {
        let (since, case) = self.cases.first_key_value()?.1;
        Some((self.kept - *since, &**case))
    }
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    patience: PATIENCE,
    tell: None,
    cases: BTreeMap::new(),
    next: 0,
    kept: Duration::ZERO,
});
static WATCHING: Once = Once::new();

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a case that takes longer than `patience` is told to `tell`, which is to end the process. If it returns, and where nothing is said, the
/// process is aborted.
pub fn on_hang(patience: Duration, tell: impl FnOnce(Violation) + Send + 'static) {
    let mut watch = watch();
    watch.patience = patience;
    watch.tell = Some(Box::new(tell));
}

/// Takes a case from those that are watched, even if it panics.
struct Watched(u64);

impl Drop for Watched {
    fn drop(&mut self) {
        watch().cases.remove(&self.0);
    }
}

/// Does `work`, which belongs to `case`, and ends the process if that hangs.
pub(crate) fn watched<T>(case: impl Display + Send + 'static, work: impl FnOnce() -> T) -> T {
    WATCHING.call_once(|| _ = std::thread::spawn(look));
    let number = {
        let mut watch = watch();
        watch.next += 1;
        let number = watch.next;
        let now = watch.kept;
        watch.cases.insert(number, (now, Box::new(case)));
        number
    };
    let _watched = Watched(number);
    work()
}

/// Looks for cases that hang, for ever.
fn look() {
    let mut looked = Instant::now();
    loop {
        std::thread::sleep(INTERVAL);
        let mut watch = watch();
        watch.look_after(std::mem::replace(&mut looked, Instant::now()).elapsed());
        let hangs = watch.oldest().filter(|(taken, _)| *taken > watch.patience);
        let Some((taken, case)) = hangs else { continue };
        let problem = format!("hangs: it has taken more than {} s", taken.as_secs());
        let violation = Violation { case: case.to_string(), problem };
        let tell = watch.tell.take();
        drop(watch);
        match tell {
            Some(tell) => tell(violation),
            None => eprintln!("{}: {}", violation.case, violation.problem),
        }
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Where this is set the test is the process that hangs.
    const HANGS: &str = "TURBIDITE_TORTURE_HANGS";

    #[test]
    fn a_case_that_hangs_ends_the_process() {
        if std::env::var_os(HANGS).is_some() {
            on_hang(Duration::from_millis(50), |violation| {
                eprintln!("{}: {}", violation.case, violation.problem);
                std::process::exit(7);
            });
            watched("soon over", || ());
            return watched("the slow one", || std::thread::sleep(Duration::from_secs(600)));
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "watch::tests::a_case_that_hangs_ends_the_process", "--nocapture"])
            .env(HANGS, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{told}");
        assert!(told.contains("the slow one: hangs") && !told.contains("soon over"), "{told}");
    }

    #[test]
    fn a_process_that_was_stopped_has_not_hung() {
        let mut watch = Watch {
            patience: PATIENCE,
            tell: None,
            cases: BTreeMap::from([(1, (Duration::ZERO, Box::new("a case") as _))]),
            next: 1,
            kept: Duration::ZERO,
        };
        for interval in [INTERVAL, Duration::from_secs(3600), INTERVAL] {
            watch.look_after(interval);
        }
        let (taken, case) = watch.oldest().unwrap();
        assert_eq!((taken, case.to_string().as_str()), (2 * INTERVAL + LONGEST_INTERVAL, "a case"));
    }

    #[test]
    fn what_panics_is_watched_no_more() {
        let number = || watch().cases.values().filter(|case| case.1.to_string() == "wrong").count();
        let panic = || {
            watched("wrong", || {
                assert_eq!(number(), 1);
                panic!("it is wrong")
            })
        };
        assert!(crate::panics::caught(panic).is_err());
        assert_eq!(number(), 0);
    }
}
