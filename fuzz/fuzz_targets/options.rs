//! Text that says what a database or a keyspace is made of.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::options(bytes));
