//! What the manifest of a hash keyspace says.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::hash_manifest(bytes));
