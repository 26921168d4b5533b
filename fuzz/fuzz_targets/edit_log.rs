//! A file of an edit log, as catalog and manifests are.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::edit_log(bytes));
