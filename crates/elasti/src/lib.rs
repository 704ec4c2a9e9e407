//! The command line of `elasti`: parses arguments and starts a process, the demo or a command.

mod operator;
mod resolver;
mod uninstall_hook;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use elasti_runtime::exit;

/// Scale-to-zero for plain Kubernetes Services that loses no request.
#[derive(Debug, Parser)]
#[command(name = "elasti", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The image is built without the demo and the commands that people type.
#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "demo")]
    Demo(elasti_demo::Demo),
    #[cfg(feature = "cli")]
    #[command(flatten)]
    Typed(elasti_cli::Command),
    Operator(operator::Operator),
    Resolver(resolver::Resolver),
    UninstallHook(uninstall_hook::UninstallHook),
    Visit(elasti_visitor::Visit),
}

/// Runs what the arguments of this process say.
#[must_use]
pub fn run() -> ExitCode {
    let ended = match parse().command {
        #[cfg(feature = "demo")]
        Command::Demo(demo) => demo.run(),
        #[cfg(feature = "cli")]
        Command::Typed(command) => command.run(command_line()),
        Command::Operator(operator) => operator.run(),
        Command::Resolver(resolver) => resolver.run(),
        Command::UninstallHook(hook) => hook.run(),
        Command::Visit(visit) => visit.run(),
    };
    exit::code(ended)
}

/// The whole command line.
#[must_use]
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// Help says `kubectl elasti` where the program was called as kubectl's plugin.
fn parse() -> Cli {
    let program = std::env::args_os().next().unwrap_or_default();
    let is_plugin = Path::new(&program)
        .file_stem()
        .is_some_and(|name| name == "kubectl-elasti");
    let command = match is_plugin {
        true => command_line().bin_name("kubectl elasti"),
        false => command_line(),
    };
    let matches = command.get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}
