//! A status that is published for others to watch.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::status(bytes));
