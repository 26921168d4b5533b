//! What the log says of a sorted load.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::log_load(bytes));
