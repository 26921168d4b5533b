//! What a table says of itself.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::table_properties(bytes));
