//! The mixes of the Yahoo! Cloud Serving Benchmark (Cooper et al., 2010), with Zipf draws: what each operation does is drawn
//! before the clock starts. One thread: the answers can be checked.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use turbidite_workload::{Start, Zipf, clock, draws};

use super::job::{Load, Mix, Step};
use super::keys;
use super::steps::{Done, Steps};
use crate::failure::{Failure, Result};
use crate::systems::System;

/// The longest scan.
const LONGEST: u32 = 100;

/// One operation, on the record with its key.
#[derive(Clone, Copy)]
enum Operation {
    Read(Start),
    Write(Start),
    ReadAndWrite(Start, Start),
    /// Of at most so many records, of which so many are there.
    Scan {
        most: u32,
        there: u32,
    },
}

/// The operations of a mix, and the records they are about.
struct Drawn {
    records: Vec<u32>,
    operations: Vec<Operation>,
    /// Bytes of keys and values that are written.
    writes: u64,
}

pub(super) fn run(steps: &mut Steps, mix: Mix, step: &Step, system: &dyn System) -> Result<Done> {
    let Drawn { records, operations, writes } = draw(steps, mix, step)?;
    let Load { keys, latency_run, .. } = steps.load;
    let count = operations.len();
    let numbers = records.iter().map(|&record| 2 * u64::from(record));
    let operations = keys::operations(keys, numbers, operations);
    let steps = &*steps;
    let times = clock::run(1, count, u64::from(latency_run), &|_| {}, |part, clock| {
        for (key, operation) in operations.part(part).iter() {
            one(steps, system, key, operation)?;
            clock.lap();
        }
        Ok::<(), Failure>(())
    })?;
    Ok(Done { times, marks: Vec::new(), user_bytes: writes * steps.load.record_bytes() })
}

/// Draws the operations, and notes what they will have left.
fn draw(steps: &mut Steps, mix: Mix, step: &Step) -> Result<Drawn> {
    let Load { records, seed, .. } = steps.load;
    let count = step.operations.unwrap_or(records);
    let phase = steps.done;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(phase) << 40);
    let skewed = draws::skewed(records, count, seed, u64::from(phase));
    let recent = (mix == Mix::D).then(|| Zipf::new(records));
    let mut drawn = Drawn { records: Vec::new(), operations: Vec::new(), writes: 0 };
    for skewed in skewed {
        let inserts = matches!(mix, Mix::D | Mix::E) && rng.random_bool(0.05);
        let stored = u32::try_from(steps.contents.len()).expect("records are counted in 32 bits");
        let record = match &recent {
            _ if inserts => stored,
            Some(zipf) => stored - 1 - zipf.draw(&mut rng),
            None => skewed,
        };
        if inserts {
            steps.contents.push(None);
        }
        let is_write = match mix {
            Mix::A | Mix::F => rng.random_bool(0.5),
            Mix::B => rng.random_bool(0.05),
            Mix::C | Mix::D | Mix::E => inserts,
        };
        let new = steps.values.start(record, phase);
        let held = &mut steps.contents[record as usize];
        let there = || Failure::other("a mix needs every record to be there");
        let operation = match (is_write, mix) {
            (true, Mix::F) => Operation::ReadAndWrite(held.ok_or_else(there)?, new),
            (true, _) => Operation::Write(new),
            (false, Mix::E) => {
                let most = rng.random_range(1..=LONGEST);
                Operation::Scan { most, there: most.min(stored - record) }
            }
            (false, _) => Operation::Read(held.ok_or_else(there)?),
        };
        if is_write {
            *held = Some(new);
            drawn.writes += 1;
        }
        drawn.records.push(record);
        drawn.operations.push(operation);
    }
    Ok(drawn)
}

#[inline]
fn one(steps: &Steps, system: &dyn System, key: &[u8], operation: Operation) -> Result<()> {
    match operation {
        Operation::Read(start) => read(steps, system, key, start),
        Operation::Write(start) => system.put(key, steps.values.at(start)),
        Operation::ReadAndWrite(old, new) => {
            read(steps, system, key, old)?;
            system.put(key, steps.values.at(new))
        }
        Operation::Scan { most, there } => {
            let (mut count, mut is_right) = (0, true);
            system.reader()?.scan(key, false, &mut |found, _| {
                is_right &= count > 0 || found == key;
                count += 1;
                count < most
            })?;
            match is_right && count == there {
                true => Ok(()),
                false => {
                    let key = key.escape_ascii();
                    Err(Failure::wrong(format!(
                        "a scan from {key} gave {count} records instead of {there}, or began elsewhere"
                    )))
                }
            }
        }
    }
}

fn read(steps: &Steps, system: &dyn System, key: &[u8], start: Start) -> Result<()> {
    let mut right = false;
    let mut seen = |value: &[u8]| right = steps.values.matches(value, start);
    system.reader()?.get(key, &mut seen)?;
    match right {
        true => Ok(()),
        false => {
            Err(Failure::wrong(format!("a get of {} gave a wrong answer", key.escape_ascii())))
        }
    }
}
