//! The file of a B+ tree.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::btree_file(bytes));
