//! Any objects of the API, in any order: the table they make never leads to a wrong place.
//! Never finds out more than the resolver's own functions say.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| elasti_resolver::fuzzing::routes(input));
