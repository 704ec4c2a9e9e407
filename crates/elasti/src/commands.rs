//! The commands that people type: one file a command, and beside them what several of them share.
//! Never part of the image: the two processes need none of it.

pub(crate) mod access;
pub(crate) mod check;
mod choice;
mod completion;
mod crd;
mod fleet;
mod follow;
pub(crate) mod lint;
mod list;
pub(crate) mod man;
mod outcome;
mod output;
mod pause;
pub(crate) mod refusal;
mod sleep;
mod span;
mod table;
mod terminal;
mod top;
mod wake;
pub(crate) mod why;

use clap::Subcommand;

use crate::dashboard;
use crate::exit::Failed;

/// In the order of the help text.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Check(check::Check),
    Completion(completion::Completion),
    Crd(crd::Crd),
    Dashboard(dashboard::Dashboard),
    Lint(lint::Lint),
    List(list::List),
    Man(man::Man),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Sleep(sleep::Sleep),
    Top(top::Top),
    Wake(wake::Wake),
    Why(why::Why),
}

impl Command {
    /// Does it; `cli` is the whole command line, for those that describe it.
    pub(crate) fn run(self, cli: clap::Command) -> Result<(), Failed> {
        match self {
            Self::Check(check) => check.run(),
            Self::Completion(completion) => completion.run(cli),
            Self::Crd(crd) => crd.run(),
            Self::Dashboard(dashboard) => dashboard.run(),
            Self::Lint(lint) => lint.run(),
            Self::List(list) => list.run(),
            Self::Man(man) => man.run(cli),
            Self::Pause(pause) => pause.run(),
            Self::Resume(resume) => resume.run(),
            Self::Sleep(sleep) => sleep.run(),
            Self::Top(top) => top.run(),
            Self::Wake(wake) => wake.run(),
            Self::Why(why) => why.run(),
        }
    }
}
