//! The front door: one binary for the processes, the demo and the command line.
//! It never decides anything about a service; it reads arguments and starts the right room.

#[cfg(feature = "cli")]
mod commands;
#[cfg(feature = "dashboard")]
mod dashboard;
#[cfg(feature = "demo")]
mod demo;
#[cfg(all(test, feature = "cli", feature = "demo"))]
mod documents;
mod exit;
#[cfg(feature = "dashboard")]
mod held;
mod operator;
mod resolver;
mod uninstall_hook;
mod visit;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Scale-to-zero for plain Kubernetes Services that loses no request.
#[derive(Debug, Parser)]
#[command(name = "elasti", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The demo, what people type, and the processes.
#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "demo")]
    Demo(demo::Demo),
    #[cfg(feature = "cli")]
    #[command(flatten)]
    Typed(commands::Command),
    Operator(operator::Operator),
    Resolver(resolver::Resolver),
    UninstallHook(uninstall_hook::UninstallHook),
    Visit(visit::Visit),
}

fn main() -> ExitCode {
    let ended = match parse().command {
        #[cfg(feature = "demo")]
        Command::Demo(demo) => demo.run(),
        #[cfg(feature = "cli")]
        Command::Typed(command) => command.run(Cli::command()),
        Command::Operator(operator) => operator.run(),
        Command::Resolver(resolver) => resolver.run(),
        Command::UninstallHook(hook) => hook.run(),
        Command::Visit(visit) => visit.run(),
    };
    exit::code(ended)
}

/// The arguments; help speaks of `kubectl elasti` to whoever called it so.
fn parse() -> Cli {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_plugin = Path::new(&called)
        .file_stem()
        .is_some_and(|name| name == "kubectl-elasti");
    let command = match is_plugin {
        true => Cli::command().bin_name("kubectl elasti"),
        false => Cli::command(),
    };
    let matches = command.get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}
