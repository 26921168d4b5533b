//! What the manifest of an LSM-tree says.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::lsm_manifest(bytes));
