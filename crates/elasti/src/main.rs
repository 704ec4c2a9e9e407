//! The front door: one binary for the processes, the demo and the command line.
//! It never decides anything about a service; it reads arguments and starts the right room.

#[cfg(feature = "demo")]
mod demo;
mod exit;
mod operator;
mod resolver;
mod uninstall_hook;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Scale-to-zero for plain Kubernetes Services that loses no request.
#[derive(Debug, Parser)]
#[command(name = "elasti", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One file a command.
#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "demo")]
    Demo(demo::Demo),
    Operator(operator::Operator),
    Resolver(resolver::Resolver),
    UninstallHook(uninstall_hook::UninstallHook),
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        #[cfg(feature = "demo")]
        Command::Demo(demo) => demo.run(),
        Command::Operator(operator) => operator.run(),
        Command::Resolver(resolver) => resolver.run(),
        Command::UninstallHook(hook) => hook.run(),
    };
    exit::code(ended)
}
