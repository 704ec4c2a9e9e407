//! How a command answers: for people, or as data for other programs.
//! Never fails because nobody reads on: a closed pipe ends the output quietly.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use elasti_api::names;
use serde::Serialize;

use elasti_runtime::exit::Failed;

/// In which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Data, documented in docs/cli.md
    Json,
    /// The same data as YAML
    Yaml,
    /// For people, with more columns
    Wide,
    /// One `kind.group/name` a line, which kubectl and elasti take as an argument
    Name,
}

/// In which form to answer.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    /// Form of the answer; default: a text for people
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
}

impl Output {
    /// Whether the answer is meant for people.
    pub(crate) fn is_text(self) -> bool {
        matches!(self.format, None | Some(Format::Wide))
    }

    pub(crate) fn is_wide(self) -> bool {
        self.format == Some(Format::Wide)
    }

    /// Refuses `-o name` where no object is named.
    pub(crate) fn without_names(self) -> Result<(), Failed> {
        match self.format {
            Some(Format::Name) => Err(Failed::Usage(
                "-o name has no meaning here; use -o json or -o yaml".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Writes data in the form that was asked for; text and names are written by whoever knows them.
    pub(crate) fn data<T: Serialize>(self, data: &T) -> Result<(), Failed> {
        let mut text = match self.format {
            Some(Format::Yaml) => serde_saphyr::to_string(data).context("no YAML")?,
            _ => serde_json::to_string_pretty(data).context("no JSON")?,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        say(&text)
    }
}

/// An ElastiService as `-o name` shows it.
pub(crate) fn resource_name(name: &str) -> String {
    format!("elastiservice.{}/{name}", names::GROUP)
}

/// Writes to standard output.
pub(crate) fn say(text: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written.context("the answer cannot be written")?),
    }
}
