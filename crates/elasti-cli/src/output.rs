//! Output of commands: text for people, or data for other programs.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use elasti_api::names;
use serde::Serialize;

use elasti_runtime::exit::Failed;

/// Output format.
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

/// How to print the result.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    /// Output format; default: text
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
}

impl Output {
    /// Whether the output is text for people.
    pub(crate) fn is_text(self) -> bool {
        matches!(self.format, None | Some(Format::Wide))
    }

    pub(crate) fn is_wide(self) -> bool {
        self.format == Some(Format::Wide)
    }

    /// Text with the usual columns.
    pub(crate) fn is_default(self) -> bool {
        self.format.is_none()
    }

    /// Refuses `-o name` where no object is named.
    pub(crate) fn without_names(self) -> Result<(), Failed> {
        match self.format {
            Some(Format::Name) => Err(Failed::Usage(
                "-o name is not supported here; use -o json or -o yaml".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Prints one of several documents that follow each other.
    pub(crate) fn document<T: Serialize>(self, data: &T) -> Result<(), Failed> {
        if self.format == Some(Format::Yaml) {
            print("---\n")?;
        }
        self.data(data)
    }

    /// Prints data as JSON or YAML; callers print text and names themselves.
    pub(crate) fn data<T: Serialize>(self, data: &T) -> Result<(), Failed> {
        let mut text = match self.format {
            Some(Format::Yaml) => serde_saphyr::to_string(data).context("cannot write YAML")?,
            _ => serde_json::to_string_pretty(data).context("cannot write JSON")?,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        print(&text)
    }
}

/// An ElastiService as `-o name` shows it.
pub(crate) fn resource_name(name: &str) -> String {
    format!("elastiservice.{}/{name}", names::GROUP)
}

/// Prints to standard output; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written.context("cannot write the output")?),
    }
}
