//! `elasti operator`: settings from flags and the environment, a Kubernetes client, a signal.
//! Never knows how a service is put to sleep: that is elasti-operator's.

use anyhow::Context as _;
use clap::Args;
use elasti_operator::environment::Flags;
use elasti_operator::{Running, Settings};
use elasti_runtime::signals::EndSignals;
use elasti_runtime::{kube_client, logs};

use crate::exit::{Failed, reported};

/// Puts idle targets to sleep and wakes them.
#[derive(Args, Debug)]
pub(crate) struct Operator {
    #[command(flatten)]
    flags: Flags,
}

impl Operator {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let reports = logs::to_stdout()?;
        let settings = Settings::from_environment(&self.flags, |name| std::env::var(name).ok())
            .map_err(|wrong| Failed::Told(wrong.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("no runtime")?;
        let ended = runtime.block_on(async {
            let sentry = reports.start(settings.sentry.clone(), "operator");
            reported(until_told(settings).await, sentry).await
        });
        runtime.shutdown_background();
        ended.map_err(Failed::from)
    }
}

async fn until_told(settings: Settings) -> anyhow::Result<()> {
    let mut signals = EndSignals::listen().context("signals cannot be taken over")?;
    let client = kube_client::from_environment().await?;
    let running = Running::start(settings, client)
        .await
        .context("cannot start")?;
    tracing::info!("the operator has started");
    signals.next().await;
    running.stop().await;
    Ok(())
}
