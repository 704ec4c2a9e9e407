//! The `elasti` program. Everything is in the library beside it, where tests reach the command line too.

use std::process::ExitCode;

fn main() -> ExitCode {
    elasti::run()
}
