//! `cargo xtask bench resolver`: the resolver against HAProxy and against no proxy at all, in one run. Every raw output stays in
//! `target/bench/`.

mod cold_start;
mod late_node;
mod load;
mod processes;
mod ratios;
mod sleep;
mod ten_thousand;
mod without_operator;

use std::error::Error;
use std::fs;
use std::process::Command;

use load::Load;
use processes::{Backend, Proxy};
use ratios::{Round, Way};

use crate::paths::{self, root};

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Each way is measured once in each round, so that noise meets all of them alike.
    pub(crate) rounds: u32,
    /// Of one measurement.
    pub(crate) seconds: u32,
    /// Of each proxy, and of the load.
    pub(crate) threads: u32,
}

impl Options {
    /// Parses `[--rounds N] [--seconds N] [--threads N]`.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self {
            rounds: 7,
            seconds: 4,
            threads: 1,
        };
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let number = arguments
                .next()?
                .parse()
                .ok()
                .filter(|number| *number > 0)?;
            match *flag {
                "--rounds" => options.rounds = number,
                "--seconds" => options.seconds = number,
                // wrk gives each of its threads a connection at least.
                "--threads" if number <= load::CONNECTIONS => options.threads = number,
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Runs the benchmark of this name; `None` where it or one of its flags is not known.
pub(crate) fn run(name: &str, options: &[&str]) -> Option<Result<(), Box<dyn Error>>> {
    Some(match name {
        "resolver" => resolver(Options::parse(options)?),
        "cold-start" => cold_start::run(&cold_start::Options::parse(options)?),
        "late-node" => late_node::run(&late_node::Options::parse(options)?),
        "sleep" => sleep::run(&sleep::Options::parse(options)?),
        "ten-thousand" => ten_thousand::run(ten_thousand::services(options)?),
        "without-operator" => without_operator::run(&without_operator::Options::parse(options)?),
        _ => return None,
    })
}

/// Builds the resolver, starts everything, measures, prints the table.
fn resolver(options: Options) -> Result<(), Box<dyn Error>> {
    let folder = paths::target().join("bench/resolver");
    fs::create_dir_all(&folder)?;
    processes::require_tools()?;
    build()?;
    let _backend = Backend::start(&folder)?;
    let threads = options.threads;
    let haproxy = Proxy::haproxy(&folder, threads)?;
    let elasti = Proxy::elasti(threads)?;
    println!(
        "{} rounds of {} s each way; wrk -t{threads} -c{}; threads of each proxy: {threads}",
        options.rounds,
        options.seconds,
        load::CONNECTIONS
    );
    let mut rounds = Vec::new();
    // The first round warms up and is not counted.
    for number in 0..=options.rounds {
        let mut round = Round::default();
        for way in Way::ALL {
            let proxy = match way {
                Way::Direct => None,
                Way::HaproxyHttp | Way::HaproxyTcp => Some(&haproxy),
                Way::ElastiHttp | Way::ElastiTcp => Some(&elasti),
            };
            let raw = folder.join(format!("round-{number}-{}.txt", way.word()));
            let seconds = if number == 0 { 1 } else { options.seconds };
            let before = proxy.map_or(Ok(0), Proxy::cpu_micros)?;
            let load: Load = load::run(&way.address(), threads, seconds, &raw)?;
            let after = proxy.map_or(Ok(0), Proxy::cpu_micros)?;
            round.add(way, load, after.saturating_sub(before));
        }
        if number > 0 {
            rounds.push(round);
        }
    }
    fs::write(folder.join("rounds.csv"), ratios::csv(&rounds))?;
    let table = ratios::table(&rounds);
    fs::write(folder.join("table.txt"), &table)?;
    println!("\n{table}\nraw files: target/bench/resolver/");
    Ok(())
}

fn build() -> Result<(), Box<dyn Error>> {
    let built = Command::new(env!("CARGO"))
        .current_dir(root())
        // What ships, not the release profile, which is made to compile quickly.
        .args([
            "build",
            "--profile",
            "image",
            "--package",
            "elasti-resolver",
        ])
        .args(["--example", "resolver_alone"])
        .status()?;
    if built.success() {
        Ok(())
    } else {
        Err("the resolver does not build".into())
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn the_resolvers_bench_has_threads_within_wrks_connections() {
        let threads = |arguments: &[&str]| Options::parse(arguments).map(|one| one.threads);
        assert_eq!(threads(&[]), Some(1));
        assert_eq!(threads(&["--rounds", "2", "--threads", "4"]), Some(4));
        for wrong in ["0", "33", "x"] {
            assert_eq!(threads(&["--threads", wrong]), None, "{wrong}");
        }
    }
}
