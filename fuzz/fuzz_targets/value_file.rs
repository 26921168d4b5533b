//! A file of values that are kept apart from their keys, without its header, behind a reference into it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::value_file(bytes));
