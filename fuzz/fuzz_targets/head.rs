//! Any bytes as a head: what they speak, which host they name, which probe rule they meet.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| elasti_resolver::fuzzing::head(input));
