//! A model beside the database: random histories, and many threads.

mod threads;

use turbidite_torture::{Report, Setting, model};

use crate::choices;
use crate::setup::{layers, memory_layers};

/// How many histories are tried, unless `PROPTEST_CASES` says otherwise.
fn cases() -> u64 {
    std::env::var("PROPTEST_CASES").map_or(60, |cases| cases.parse().expect("a number"))
}

#[test]
fn random_histories_give_the_answers_of_the_model() {
    let (memory, disk) = (memory_layers(), layers());
    let mut sum = Report::default();
    for case in 0..cases() {
        let seed = choices::mix(choices::seed(), ("history", case));
        let at = (case / 5 * 4 + case % 5) as usize;
        let dir = tempfile::tempdir().unwrap();
        let report = match case % 5 {
            4 => {
                let layer = disk[(case / 5) as usize % disk.len()];
                model::run(Setting::new(seed, layer), Some(dir.path()), model::SHORTER)
            }
            _ => model::run(Setting::new(seed, memory[at % memory.len()]), None, model::SHORTER),
        };
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        sum += report;
    }
    // The histories went where they were meant to go.
    println!("{:?}", sum.counts);
    for (what, least) in
        [("flushes", 2 * cases()), ("compactions", cases()), ("reopenings", cases())]
    {
        assert!(sum.counts[what] > least, "{what}: {:?}", sum.counts);
    }
}
