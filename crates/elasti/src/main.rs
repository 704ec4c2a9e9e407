//! The front door: one binary for the processes, the demo and the command line.
//! It never decides anything about a service; it reads arguments and starts the right room.

#[cfg(feature = "cli")]
mod access;
#[cfg(feature = "cli")]
mod check;
#[cfg(feature = "cli")]
mod choice;
#[cfg(feature = "cli")]
mod completion;
#[cfg(feature = "cli")]
mod crd;
#[cfg(feature = "dashboard")]
mod dashboard;
#[cfg(feature = "demo")]
mod demo;
#[cfg(all(test, feature = "cli", feature = "demo"))]
mod documents;
mod exit;
#[cfg(feature = "cli")]
mod fleet;
#[cfg(feature = "cli")]
mod follow;
#[cfg(feature = "cli")]
mod lint;
#[cfg(feature = "cli")]
mod list;
#[cfg(feature = "cli")]
mod man;
mod operator;
#[cfg(feature = "cli")]
mod outcome;
#[cfg(feature = "cli")]
mod output;
#[cfg(feature = "cli")]
mod pause;
#[cfg(feature = "cli")]
mod refusal;
mod resolver;
#[cfg(feature = "cli")]
mod sleep;
#[cfg(feature = "cli")]
mod span;
#[cfg(feature = "cli")]
mod table;
#[cfg(feature = "cli")]
mod terminal;
#[cfg(feature = "cli")]
mod top;
mod uninstall_hook;
mod visit;
#[cfg(feature = "cli")]
mod wake;
#[cfg(feature = "cli")]
mod why;

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

/// One file a command.
#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "cli")]
    Check(check::Check),
    #[cfg(feature = "cli")]
    Completion(completion::Completion),
    #[cfg(feature = "cli")]
    Crd(crd::Crd),
    #[cfg(feature = "cli")]
    Dashboard(dashboard::Dashboard),
    #[cfg(feature = "demo")]
    Demo(demo::Demo),
    #[cfg(feature = "cli")]
    Lint(lint::Lint),
    #[cfg(feature = "cli")]
    List(list::List),
    #[cfg(feature = "cli")]
    Man(man::Man),
    Operator(operator::Operator),
    #[cfg(feature = "cli")]
    Pause(pause::Pause),
    Resolver(resolver::Resolver),
    #[cfg(feature = "cli")]
    Resume(pause::Resume),
    #[cfg(feature = "cli")]
    Sleep(sleep::Sleep),
    #[cfg(feature = "cli")]
    Top(top::Top),
    UninstallHook(uninstall_hook::UninstallHook),
    Visit(visit::Visit),
    #[cfg(feature = "cli")]
    Wake(wake::Wake),
    #[cfg(feature = "cli")]
    Why(why::Why),
}

fn main() -> ExitCode {
    let ended = match parse().command {
        #[cfg(feature = "cli")]
        Command::Check(check) => check.run(),
        #[cfg(feature = "cli")]
        Command::Completion(completion) => completion.run(Cli::command()),
        #[cfg(feature = "cli")]
        Command::Crd(crd) => crd.run(),
        #[cfg(feature = "cli")]
        Command::Dashboard(dashboard) => dashboard.run(),
        #[cfg(feature = "demo")]
        Command::Demo(demo) => demo.run(),
        #[cfg(feature = "cli")]
        Command::Lint(lint) => lint.run(),
        #[cfg(feature = "cli")]
        Command::List(list) => list.run(),
        #[cfg(feature = "cli")]
        Command::Man(man) => man.run(Cli::command()),
        Command::Operator(operator) => operator.run(),
        #[cfg(feature = "cli")]
        Command::Pause(pause) => pause.run(),
        Command::Resolver(resolver) => resolver.run(),
        #[cfg(feature = "cli")]
        Command::Resume(resume) => resume.run(),
        #[cfg(feature = "cli")]
        Command::Sleep(sleep) => sleep.run(),
        #[cfg(feature = "cli")]
        Command::Top(top) => top.run(),
        Command::UninstallHook(hook) => hook.run(),
        Command::Visit(visit) => visit.run(),
        #[cfg(feature = "cli")]
        Command::Wake(wake) => wake.run(),
        #[cfg(feature = "cli")]
        Command::Why(why) => why.run(),
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
