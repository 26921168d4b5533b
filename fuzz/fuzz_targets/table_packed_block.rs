//! A data block of a table as it is compressed, with its dictionary.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::table_packed_block(bytes));
