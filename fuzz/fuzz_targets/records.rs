//! Text files of records, as `turbidite import` reads them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| turbidite_records::fuzzing::records(bytes));
