//! The index of a table, behind the bytes that its data blocks take, as a `u64`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::table_index(bytes));
