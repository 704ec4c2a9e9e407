//! Any objects of the API, in any order: every route of the table goes to the right pods.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| elasti_resolver::fuzzing::routes(input));
