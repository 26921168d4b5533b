//! A model beside the database: random histories, and many threads.

mod threads;

use turbidite_torture::model::play;

use crate::choices;
use crate::setup::{layers, memory_layers};

/// How many histories are tried, unless `PROPTEST_CASES` says otherwise.
fn cases() -> u64 {
    std::env::var("PROPTEST_CASES").map_or(60, |cases| cases.parse().expect("a number"))
}

#[test]
fn random_histories_give_the_answers_of_the_model() {
    let (memory, disk) = (memory_layers(), layers());
    let (mut flushes, mut compactions, mut reopenings) = (0, 0, 0);
    for case in 0..cases() {
        let seed = choices::mix(choices::seed(), ("history", case));
        let at = (case / 5 * 4 + case % 5) as usize;
        let dir = tempfile::tempdir().unwrap();
        let played = match case % 5 {
            4 => play(seed, disk[(case / 5) as usize % disk.len()], Some(dir.path())),
            _ => play(seed, memory[at % memory.len()], None),
        };
        let figures = played.unwrap_or_else(|found| {
            panic!("seed {}, {}: {}", found.seed, found.layer, found.problem)
        });
        flushes += figures.flushes;
        compactions += figures.compactions;
        reopenings += figures.reopenings;
    }
    // The histories went where they were meant to go.
    println!("{flushes} flushes, {compactions} compactions, {reopenings} reopenings");
    assert!(flushes > 2 * cases() && compactions > cases() && reopenings > cases());
}
