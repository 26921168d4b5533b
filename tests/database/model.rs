//! A model beside the database: random histories must give the answers of a sorted map, through flushes,
//! compactions, snapshots, closing, kills and power cuts, whatever LSM-trees are made of. What a kill or a power cut may take away is a
//! suffix of the history, and nothing that had been promised.

mod history;
mod operation;
mod threads;
mod world;

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use crate::setup::{layers, memory_layers};
use operation::operations;
use world::{Kind, World};

/// How many histories are tried, unless `PROPTEST_CASES` says otherwise.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").map_or(60, |cases| cases.parse().expect("a number"))
}

#[test]
fn random_histories_give_the_answers_of_the_model() {
    let (flushes, compactions, reopenings) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let in_memory = select(memory_layers()).prop_map(Kind::Memory);
    let kinds = prop_oneof![4 => in_memory, 1 => select(layers()).prop_map(Kind::Disk)];
    let mut runner =
        TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    let histories = (kinds, any::<u64>(), vec(operations(), 1..160));
    let result = runner.run(&histories, |(kind, seed, operations)| {
        let mut world = World::new(kind, seed);
        for operation in &operations {
            world.run(operation);
        }
        let figures = world.finish();
        flushes.set(flushes.get() + figures.flushes);
        compactions.set(compactions.get() + figures.compactions);
        reopenings.set(reopenings.get() + figures.reopenings);
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    // The histories went where they were meant to go.
    let cases = u64::from(cases());
    println!("{flushes:?} flushes, {compactions:?} compactions, {reopenings:?} reopenings");
    assert!(flushes.get() > 2 * cases && compactions.get() > cases && reopenings.get() > cases);
}
