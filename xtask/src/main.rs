//! Project chores: `cargo xtask generate` and `cargo xtask test`.
//! It never ships.

mod generate;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  generate        rewrite the files that are made from code
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["generate"] => generate::write_all(),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
