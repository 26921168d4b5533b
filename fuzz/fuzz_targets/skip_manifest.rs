//! What the manifest of a skip keyspace says.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::skip_manifest(bytes));
