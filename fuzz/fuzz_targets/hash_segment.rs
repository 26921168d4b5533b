//! A segment of a hash keyspace, without its header.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::hash_segment(bytes));
