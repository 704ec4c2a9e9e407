//! Any bytes after the preface of HTTP/2: the resolver's server ends the connection, and never spins.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| elasti_resolver::fuzzing::http2(input));
