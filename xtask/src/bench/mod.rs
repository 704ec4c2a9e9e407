//! `cargo xtask bench resolver`: the resolver against HAProxy and against no proxy at all, in one run. Every raw output stays in
//! `target/bench/`.

mod cold_start;
mod load;
mod processes;
mod ratios;
mod sleep;
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
}

impl Options {
    /// Parses `[--rounds N] [--seconds N]`.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self {
            rounds: 7,
            seconds: 4,
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
        "sleep" => sleep::run(&sleep::Options::parse(options)?),
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
    let haproxy = Proxy::haproxy(&folder)?;
    let elasti = Proxy::elasti()?;
    println!(
        "{} rounds of {} s each way; wrk -t1 -c{}; one thread each",
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
            let load: Load = load::run(&way.address(), seconds, &raw)?;
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
