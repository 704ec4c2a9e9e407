//! Project chores: `cargo xtask` with a word says which one to do.
//! It never ships.

mod bench;
mod campaign;
mod chart;
mod checks;
mod churn;
mod conformance;
mod control_plane;
mod dashboard;
mod deny;
mod e2e;
mod generate;
mod image;
mod kubernetes;
mod limit;
mod real;
mod simulate;
#[path = "../../crates/elasti-api/tests/api/acceptance/table.rs"]
mod table;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  generate        rewrite the files that are made from code
  test [--ci | --only TEXT]
                  run every check and test, or those named so; with --ci nothing may be left out
  simulate [--seeds N] [--seed K]
                  run a resolver in a simulated world: N seeds (500), or one seed twenty times with its counts
  campaign [--runs N] [--only TEXT]
                  every fault of the simulated cluster at every call of six end-to-end tests: all runs, N of them, or those named so
  crd-conformance --kube-apiserver PATH --etcd PATH
                  run the acceptance table of the CRD against a real API server
  bench resolver [--rounds N] [--seconds N]
                  the resolver against HAProxy and against no proxy: requests/s, CPU, latency
                  (needs haproxy, nginx and wrk; installs them where apt-get may)
  bench cold-start [--runs N] [--proxy-mode iptables|nftables]
                  the first request to a sleeping service against a bare scale, on the real node
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["generate"] => generate::write_all(),
        ["test"] => checks::run(false, ""),
        ["test", "--only", text] => checks::run(false, text),
        ["test", "--ci"] => checks::run(true, ""),
        ["simulate", wish @ ..] => simulate::run(wish),
        ["campaign", wish @ ..] => campaign::run(wish),
        [
            "crd-conformance",
            "--kube-apiserver",
            apiserver,
            "--etcd",
            etcd,
        ] => conformance::run(Path::new(apiserver), Path::new(etcd)),
        ["bench", "resolver", extent @ ..] => match bench::Extent::read(extent) {
            Some(extent) => bench::resolver(extent),
            None => return usage(),
        },
        ["bench", "cold-start", extent @ ..] => match bench::cold_start::Extent::read(extent) {
            Some(extent) => bench::cold_start::run(&extent),
            None => return usage(),
        },
        ["chart"] => chart::run(),
        ["dashboard"] => dashboard::run(),
        ["kustomize"] => chart::kustomize::write(),
        ["churn", extent @ ..] => match churn::Extent::read(extent) {
            Some(extent) => churn::run(&extent),
            None => return usage(),
        },
        ["end-to-end tests", extent @ ..] => match e2e::Extent::read(extent) {
            Some(extent) => e2e::run(&extent),
            None => return usage(),
        },
        ["kubernetes", rest @ ..] => match kubernetes::run(rest) {
            Some(outcome) => outcome,
            None => return usage(),
        },
        ["image", rest @ ..] => match image::run(rest) {
            Some(outcome) => outcome,
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
    eprint!(
        "{USAGE}{}{}{}{}{}{}{}",
        chart::USAGE,
        chart::kustomize::USAGE,
        churn::USAGE,
        dashboard::USAGE,
        image::USAGE,
        e2e::USAGE,
        kubernetes::USAGE
    );
    ExitCode::from(2)
}
