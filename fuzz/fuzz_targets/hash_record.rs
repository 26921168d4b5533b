//! The front of a record of a hash keyspace.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::hash_record(bytes));
