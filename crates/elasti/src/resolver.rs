//! `elasti resolver`: settings from the environment, a Kubernetes client, two signals.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::Args;
use elasti_resolver::{Running, Settings, VARIABLES, WITHOUT_USE};
use elasti_runtime::signals::EndSignals;
use elasti_runtime::{kube_client, logs};

use elasti_runtime::exit::{self, Failed};

/// Holds requests for sleeping services, wakes them, and forwards.
///
/// Runs until SIGTERM or SIGINT. The first one drains: it becomes unready at once, accepts new connections until none
/// came for the settle time, and exits after the last held request and the last open connection. The second one stops it at once.
#[derive(Args, Debug)]
#[command(after_long_help = environment())]
pub(crate) struct Resolver {}

impl Resolver {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let Self {} = self;
        let reports = logs::to_stdout()?;
        let settings = Settings::from_environment(|name| std::env::var(name).ok())
            .map_err(|error| Failed::Usage(error.to_string()))?;
        let sentry = settings.sentry.clone();
        exit::run("resolver", &reports, sentry, until_drained(settings))
    }
}

async fn until_drained(settings: Settings) -> anyhow::Result<()> {
    let mut signals = EndSignals::listen().context("cannot listen for signals")?;
    let client = kube_client::from_environment().await?;
    let (admin, health) = (settings.admin, settings.health);
    let proxy = { settings.proxy }.map_or_else(|| "off".to_owned(), |proxy| proxy.to_string());
    let running = Running::start(settings, client).with_context(|| {
        format!("cannot listen on {admin}, {health} and the host route ({proxy})")
    })?;
    tracing::info!(%admin, %health, proxy, version = env!("CARGO_PKG_VERSION"), "resolver started");
    signals.next().await;
    tracing::info!(held = running.held(), "SIGTERM received: draining");
    tokio::select! {
        () = running.drain() => {
            tracing::info!("drained");
            Ok(())
        }
        () = signals.next() => {
            let held = running.held();
            tracing::warn!(held, "second SIGTERM received: stopping at once");
            anyhow::bail!("second SIGTERM received: {held} held requests were cut off")
        }
    }
}

/// The variables, for `--help`.
fn environment() -> String {
    let mut text = String::from("Environment (an empty variable counts as absent):\n");
    for one in VARIABLES {
        let _ = writeln!(
            text,
            "  {}\n      {} [default: {}]",
            one.name, one.meaning, one.default
        );
    }
    text.push_str("\nAccepted for compatibility with KubeElasti, without effect; logged once:\n");
    for name in WITHOUT_USE {
        let _ = writeln!(text, "  {name}");
    }
    text.push_str(
        "\nKubernetes is found by KUBECONFIG, ~/.kube/config or the pod's service account.\n",
    );
    text
}
