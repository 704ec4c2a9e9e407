//! `elasti man`: the help texts as manual pages, or as the reference in docs.

mod markdown;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::Man as Page;

use crate::output::print;
use elasti_runtime::exit::{CODES, Failed};

use markdown::reference;

/// Prints manual pages.
///
/// Read one:      elasti man lint | man -l -
/// Install all:   elasti man --folder ~/.local/share/man/man1
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, after_help = CODES)]
pub struct Man {
    /// The command; default: elasti itself
    #[arg(value_name = "COMMAND", conflicts_with_all = ["folder", "markdown"])]
    command: Option<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "markdown")]
    folder: Option<PathBuf>,
    /// Print the reference of all commands as Markdown, as in docs/commands.md
    #[arg(long)]
    markdown: bool,
}

impl Man {
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failed> {
        command.build();
        if self.markdown {
            return print(&reference(&command));
        }
        let Some(folder) = &self.folder else {
            return print(&page(self.chosen(&command)?)?);
        };
        let made = std::fs::create_dir_all(folder);
        made.with_context(|| format!("cannot create {}", folder.display()))?;
        for one in std::iter::once(&command).chain(shown(&command)) {
            let name = match one.get_name() {
                "elasti" => "elasti.1".to_owned(),
                name => format!("elasti-{name}.1"),
            };
            let path = folder.join(&name);
            let written = std::fs::write(&path, page(one)?);
            written.with_context(|| format!("cannot write {}", path.display()))?;
            print(&format!("wrote {}\n", path.display()))?;
        }
        Ok(())
    }

    fn chosen<'a>(&self, command: &'a Command) -> Result<&'a Command, Failed> {
        let Some(name) = &self.command else {
            return Ok(command);
        };
        shown(command)
            .find(|one| one.get_name() == name)
            .ok_or_else(|| {
                let all: Vec<&str> = shown(command).map(Command::get_name).collect();
                Failed::Usage(format!(
                    "there is no command {name:?}; there are: {}",
                    all.join(", ")
                ))
            })
    }
}

/// The commands that help shows, without help itself.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

fn page(command: &Command) -> Result<String, Failed> {
    let title = match command.get_name() {
        "elasti" => "elasti".to_owned(),
        name => format!("elasti-{name}"),
    };
    let mut text = Vec::new();
    Page::new(command.clone())
        .title(title)
        .source(concat!("elasti ", env!("CARGO_PKG_VERSION")))
        .manual("Elasti")
        .render(&mut text)
        .context("cannot render the page")?;
    Ok(String::from_utf8(text).context("the page is not UTF-8")?)
}
