//! The range tombstones of a table.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::table_ranges(bytes));
