//! The commands that people type: one file a command, and what several of them share. Not part of the image.

pub mod access;
pub mod check;
mod choice;
mod complete;
mod completion;
mod crd;
mod dashboard;
mod fleet;
mod follow;
mod lint;
mod list;
mod man;
mod outcome;
mod output;
mod pause;
mod reachability;
pub mod refusal;
mod request;
mod savings;
mod sleep;
mod span;
mod table;
pub mod terminal;
mod top;
mod version;
mod wake;
mod watched;
pub mod why;

use clap::Subcommand;

use elasti_runtime::exit::Failed;

/// The commands that people type, in the order of the help text.
#[derive(Debug, Subcommand)]
#[allow(missing_docs)] // Each variant's own type is documented: that text is its help.
pub enum Command {
    Check(check::Check),
    Complete(complete::Complete),
    Completion(completion::Completion),
    Crd(crd::Crd),
    Dashboard(dashboard::Dashboard),
    Lint(lint::Lint),
    List(list::List),
    Man(man::Man),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Savings(savings::Savings),
    Sleep(sleep::Sleep),
    Top(top::Top),
    Version(version::Version),
    Wake(wake::Wake),
    Why(why::Why),
}

impl Command {
    /// Runs it; `cli` is the whole command line, for `man` and `completion`.
    pub fn run(self, cli: clap::Command) -> Result<(), Failed> {
        match self {
            Self::Check(check) => check.run(),
            Self::Complete(complete) => complete.run(&cli),
            Self::Completion(completion) => completion.run(cli),
            Self::Crd(crd) => crd.run(),
            Self::Dashboard(dashboard) => dashboard.run(),
            Self::Lint(lint) => lint.run(),
            Self::List(list) => list.run(),
            Self::Man(man) => man.run(cli),
            Self::Pause(pause) => pause.run(),
            Self::Resume(resume) => resume.run(),
            Self::Savings(savings) => savings.run(),
            Self::Sleep(sleep) => sleep.run(),
            Self::Top(top) => top.run(),
            Self::Version(version) => version.run(),
            Self::Wake(wake) => wake.run(),
            Self::Why(why) => why.run(),
        }
    }
}
