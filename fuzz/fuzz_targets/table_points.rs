//! The point index of a table, behind the hash of a key, as a `u64`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::table_points(bytes));
