//! The footer of a sorted file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite::fuzzing::skip_footer(bytes));
