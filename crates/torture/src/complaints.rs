//! What the store says of trouble that it goes on after, by the `log` crate. Where nothing is wrong with disk and files it has nothing to say.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

/// What was said in each simulation that is listened to, by its number.
static HEARD: Mutex<BTreeMap<u64, Vec<String>>> = Mutex::new(BTreeMap::new());
static LISTENING: Once = Once::new();

fn heard() -> MutexGuard<'static, BTreeMap<u64, Vec<String>>> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Listener;

impl Log for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        if let Some(number) = turbidite::simulation::number()
            && let Some(said) = heard().get_mut(&number)
        {
            said.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Takes the simulation from those that are listened to, even if there is a panic.
struct Listening(u64);

impl Drop for Listening {
    fn drop(&mut self) {
        heard().remove(&self.0);
    }
}

/// Does `work` in a simulation that the seed decides, with all threads that it starts.
///
/// # Panics
/// If the store complains meanwhile.
pub(crate) fn without_any<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    LISTENING.call_once(|| {
        // Where a program listens itself, nothing is heard here.
        if log::set_logger(&Listener).is_ok() {
            log::set_max_level(LevelFilter::Warn);
        }
    });
    let mut listening = None;
    let result = crate::simulated(seed, || {
        let number = turbidite::simulation::number().expect("it is a simulation");
        heard().insert(number, Vec::new());
        listening = Some(Listening(number));
        work()
    });
    let number = listening.as_ref().map_or(0, |listening| listening.0);
    let said = heard().remove(&number).unwrap_or_default();
    assert!(said.is_empty(), "the store complains though nothing is wrong: {said:?}");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_of_all_threads_of_a_simulation_are_heard() {
        assert_eq!(without_any(1, || 7), 7);
        for says in [|| log::warn!("a file stays"), || log::error!("a file stays")] {
            let complain = || without_any(1, || turbidite::simulation::together([says]));
            let problem = crate::panics::caught(complain).unwrap_err();
            assert!(problem.contains("a file stays"), "{problem}");
        }
        // Nobody listens to what others say, and to what is no complaint.
        without_any(1, || log::info!("all is well"));
        turbidite::simulation::run(1, || log::error!("a file stays"));
        log::error!("a file stays");
        assert_eq!(without_any(1, || 7), 7);
    }
}
