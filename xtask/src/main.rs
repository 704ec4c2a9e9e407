//! Project chores: `cargo xtask generate`, `test`, `crd-conformance` and `bench`.
//! It never ships.

mod bench;
mod checks;
mod conformance;
mod control_plane;
mod deny;
mod generate;
#[path = "../../crates/elasti-api/tests/acceptance/table.rs"]
mod table;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  generate        rewrite the files that are made from code
  test [--ci]     run every check and test; --ci leaves nothing out that the machine can do
  crd-conformance --kube-apiserver PATH --etcd PATH
                  run the acceptance table of the CRD against a real API server (needs kubectl)
  bench resolver [--rounds N] [--seconds N]
                  the resolver against HAProxy and against no proxy: requests/s, CPU, latency
                  (needs haproxy, nginx and wrk; installs them where apt-get may)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["generate"] => generate::write_all(),
        ["test"] => checks::run(false),
        ["test", "--ci"] => checks::run(true),
        [
            "crd-conformance",
            "--kube-apiserver",
            apiserver,
            "--etcd",
            etcd,
        ] => conformance::run(apiserver, etcd),
        ["bench", "resolver", extent @ ..] => match bench::Extent::read(extent) {
            Some(extent) => bench::resolver(extent),
            None => return usage(),
        },
        _ => return usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}
