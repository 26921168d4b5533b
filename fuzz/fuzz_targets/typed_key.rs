//! A key of a typed keyspace.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::typed_key(bytes));
