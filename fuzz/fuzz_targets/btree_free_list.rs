//! The free pages of a B+ tree, behind the number of its pages, as a `u32`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::btree_free_list(bytes));
