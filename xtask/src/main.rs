//! Project chores: `cargo xtask COMMAND`.

mod argocd;
mod bench;
mod book;
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
// The file and not its crate, which would bring the types of Kubernetes.
#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/elasti-api/src/names.rs"]
mod names;
mod paths;
mod real;
mod recording;
mod release;
mod simulate;
#[path = "../../crates/elasti-api/tests/api/acceptance/table.rs"]
mod table;
mod words;
mod workflows;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  generate        rewrite the files that are made from code
  test            run every check and test that needs only Rust and a C compiler
  test --real     run what takes longer, or needs root, Go, Node and Chromium
  test --ci       run both; what cannot run on this machine has failed
  test --only TEXT
                  run the checks of either whose names contain TEXT
  simulate [--seeds N] [--seed K]
                  run a resolver in a simulated world: N seeds (500), or one seed twenty times with its counts
  campaign [--runs N] [--only TEXT]
                  every fault of the simulated cluster at every call of six end-to-end tests: all runs, N of them, or those named so
  crd-conformance --kube-apiserver PATH --etcd PATH
                  run the acceptance table of the CRD against a real API server
  bench resolver [--rounds N] [--seconds N] [--threads N]
                  the resolver against HAProxy and against no proxy: requests/s, CPU, latency
                  (needs haproxy, nginx and wrk; installs them where apt-get may)
  bench cold-start [--runs N] [--proxy-mode iptables|nftables] [--start-seconds N] [--probe-seconds N]
        [--probe-ahead true|false]
                  the first request to a sleeping service against a bare scale, on the real node, for an app that
                  listens after so long and has a readiness probe of that period
  bench sleep [--runs N] [--nodes N] [--replicas N] [--proxy-mode iptables|nftables]
                  how long a target of so many pods on so many real nodes (6) takes from the end of its cooldown to zero
  bench late-node [--away-seconds N] [--proxy-mode iptables|nftables]
                  requests that wait for a pod whose only node appears after so long (120): takes the second of two real
                  nodes away and starts it again; prints how long after the node was Ready each was answered
  bench without-operator [--nodes N] [--proxy-mode iptables|nftables]
                  what clients on every real node see while no operator runs: the only pod is killed, then the target
                  is scaled to zero by hand; prints where each lost request was sent
  bench ten-thousand [--services N]
                  so many sleeping services (3000) on a real API server without nodes: memory, calls at rest, restarts, a
                  rollout of the resolvers and many wakes at once (needs root)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["generate"] => generate::write_all(),
        ["test", rest @ ..] => match checks::run(rest) {
            Some(outcome) => outcome,
            None => return usage(),
        },
        ["simulate", rest @ ..] => simulate::run(rest),
        ["campaign", rest @ ..] => campaign::run(rest),
        [
            "crd-conformance",
            "--kube-apiserver",
            apiserver,
            "--etcd",
            etcd,
        ] => conformance::run(Path::new(apiserver), Path::new(etcd)),
        ["bench", what, options @ ..] => match bench::run(what, options) {
            Some(outcome) => outcome,
            None => return usage(),
        },
        ["book", rest @ ..] => match book::run(rest) {
            Some(outcome) => outcome,
            None => return usage(),
        },
        ["chart"] => chart::run(),
        ["dashboard"] => dashboard::run(),
        ["kustomize"] => chart::kustomize::write(),
        ["churn", options @ ..] => match churn::Options::parse(options) {
            Some(options) => churn::run(&options),
            None => return usage(),
        },
        ["e2e", options @ ..] => match e2e::Options::parse(options) {
            Some(options) => e2e::run(&options),
            None => return usage(),
        },
        ["recording", rest @ ..] => match recording::run(rest) {
            Some(outcome) => outcome,
            None => return usage(),
        },
        ["words"] => words::run(),
        ["kubernetes", rest @ ..] => match kubernetes::run(rest) {
            Some(outcome) => outcome,
            None => return usage(),
        },
        ["image", rest @ ..] => match image::run(rest) {
            Some(outcome) => outcome,
            None => return usage(),
        },
        ["release", rest @ ..] => match release::run(rest) {
            Some(outcome) => outcome,
            None => return usage(),
        },
        ["workflows"] => workflows::run(),
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
        "{USAGE}{}{}{}{}{}{}{}{}{}{}{}{}",
        book::USAGE,
        chart::USAGE,
        chart::kustomize::USAGE,
        churn::USAGE,
        dashboard::USAGE,
        image::USAGE,
        e2e::USAGE,
        kubernetes::USAGE,
        recording::USAGE,
        release::USAGE,
        words::USAGE,
        workflows::USAGE
    );
    ExitCode::from(2)
}
