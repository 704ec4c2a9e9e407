//! `elasti why`: why a service is awake or asleep, what comes next, and for a failing wake the true cause.

mod live;
mod text;

use std::sync::Arc;

use clap::Args;
use elasti_dashboard::Explain;
use elasti_view::explanation::{LiveObjects, explain};
use jiff::Timestamp;

use crate::access::{Access, Cluster, block_on};
use crate::choice::{Chosen, bare};
use crate::output::{Format, Output, print, resource_name};
use crate::terminal::Terminal;
use elasti_runtime::exit::{self, Failed};

/// Explains why a service is awake or asleep, and its problems.
///
/// Shows the phase and since when, each trigger's reading against its threshold, what blocks sleep, when it would
/// sleep, how long the last wake took and what caused it. If a wake fails, it shows the cause that Kubernetes reports,
/// with commands to inspect and fix it. Exits with code 1 if there is a problem.
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
            let live = live::load(&cluster, &name, Timestamp::now()).await.ok()?;
            Some(text::render(&explain(&live), live.now, Terminal::plain()))
        })
    })
}

/// What `why` needs to know about one service, or why it cannot be shown.
pub(crate) async fn load(cluster: &Cluster, one: &Chosen) -> Result<LiveObjects, String> {
    let cluster = Cluster {
        client: cluster.client.clone(),
        namespace: one.namespace.clone(),
    };
    let loaded = live::load(&cluster, &one.name, Timestamp::now()).await;
    loaded.map_err(|failed| match failed {
        Failed::Other(error) => format!("{error:#}\n"),
        Failed::Usage(line) => format!("{line}\n"),
        Failed::Reported => String::new(),
    })
}

/// The text about it.
pub(crate) fn rendered(live: &LiveObjects, terminal: Terminal) -> String {
    text::render(&explain(live), live.now, terminal)
}

impl Why {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(self.explain())
    }

    async fn explain(&self) -> Result<(), Failed> {
        let cluster = self.access.connect().await?;
        let live = live::load(&cluster, bare(&self.name)?, Timestamp::now()).await?;
        let explanation = explain(&live);
        match self.output.format {
            Some(Format::Json | Format::Yaml) => self.output.data(&explanation)?,
            Some(Format::Name) => print(&format!("{}\n", resource_name(&explanation.view.name)))?,
            None | Some(Format::Wide) => {
                print(&text::render(&explanation, live.now, Terminal::of_output()))?;
            }
        }
        match explanation.view.trouble {
            true => Err(Failed::Reported),
            false => Ok(()),
        }
    }
}
