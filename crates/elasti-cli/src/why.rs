//! `elasti why`: why a service is awake or asleep, what comes next, and for a failing wake the true cause.
//! It never guesses: the rules are the operator's, the words of failures are Kubernetes'.

mod look;
mod text;

use std::sync::Arc;

use clap::Args;
use elasti_core::explanation::explain;
use elasti_dashboard::Explain;
use jiff::Timestamp;

use crate::access::{Access, Cluster, block_on};
use crate::choice::bare;
use crate::output::{Format, Output, resource_name, say};
use crate::terminal::Terminal;
use elasti_runtime::exit::{self, Failed};

/// Says why a service is awake or asleep, and what goes wrong.
///
/// Shows the phase and since when, each trigger's reading against its threshold, what blocks sleep, when it would
/// sleep, what the last wake cost and who asked for it. If a wake fails, it shows the cause that Kubernetes gives,
/// with the command to look at it or to mend it. Ends with code 1 if anything goes wrong.
///
/// Example: elasti why web -n shop
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Why {
    /// The ElastiService
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

/// The same text for the dashboard: without colour, in lines of any length.
#[must_use]
pub fn for_page() -> Explain {
    Arc::new(|client, namespace, name| {
        Box::pin(async move {
            let cluster = Cluster { client, namespace };
            let live = look::look(&cluster, &name, Timestamp::now()).await.ok()?;
            Some(text::tell(&explain(&live), live.now, Terminal::plain()))
        })
    })
}

impl Why {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(self.tell())
    }

    async fn tell(&self) -> Result<(), Failed> {
        let cluster = self.access.connect().await?;
        let live = look::look(&cluster, bare(&self.name)?, Timestamp::now()).await?;
        let explanation = explain(&live);
        match self.output.format {
            Some(Format::Json | Format::Yaml) => self.output.data(&explanation)?,
            Some(Format::Name) => say(&format!("{}\n", resource_name(&explanation.view.name)))?,
            None | Some(Format::Wide) => {
                say(&text::tell(&explanation, live.now, Terminal::of_output()))?;
            }
        }
        match explanation.view.trouble {
            true => Err(Failed::Reported),
            false => Ok(()),
        }
    }
}
