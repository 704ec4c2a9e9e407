//! `elasti operator`: settings from flags and the environment, a Kubernetes client, a signal.

use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use elasti_core::held::Counts;
use elasti_dashboard::held::{HeldSource, HeldUnavailable};
use elasti_operator::environment::Flags;
use elasti_operator::{Running, Settings};
use elasti_runtime::signals::EndSignals;
use elasti_runtime::{kube_client, logs};

use elasti_runtime::exit::{self, Failed};

/// Puts idle targets to sleep and wakes them.
#[derive(Args, Debug)]
pub(crate) struct Operator {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    dashboard: DashboardOptions,
}

/// The read-only dashboard of the operator, off unless it has an address.
#[derive(Args, Debug)]
struct DashboardOptions {
    /// Serve the dashboard here, read-only, for example [::]:8090; default: not served
    #[arg(long, value_name = "ADDRESS")]
    dashboard_bind_address: Option<SocketAddr>,
    /// A host name that browsers may use for the dashboard, besides an address and localhost
    #[arg(long, value_name = "NAME")]
    dashboard_host: Vec<String>,
    /// Price of a CPU core-hour and a GiB-hour of memory, to show savings in money: 0.03,0.004,EUR; and of an hour of
    /// extended resources: 0.03,0.004,EUR,nvidia.com/gpu=2.1
    #[arg(long, value_name = "CPU,GIB,CURRENCY")]
    dashboard_price: Option<elasti_dashboard::Price>,
}

/// The operator in this process knows the resolvers and asks them itself.
struct AskOperator(elasti_operator::HeldCounts);

impl HeldSource for AskOperator {
    async fn ask(&mut self) -> Result<Counts, HeldUnavailable> {
        let answer = self.0.ask().await;
        answer.map_err(|error| HeldUnavailable::NoAnswer(error.to_string()))
    }
}

impl DashboardOptions {
    /// It ends when what is returned is dropped.
    async fn start(
        self,
        namespaces: Vec<String>,
        client: kube::Client,
        waiting: elasti_operator::HeldCounts,
    ) -> anyhow::Result<Option<elasti_dashboard::Running>> {
        let Some(listen) = self.dashboard_bind_address else {
            return Ok(None);
        };
        let settings = elasti_dashboard::Settings {
            listen,
            namespaces,
            hosts: self.dashboard_host,
            writes: false,
            price: self.dashboard_price,
            place: "in the cluster".to_owned(),
            explain: None,
        };
        let held_source = AskOperator(waiting);
        let running = elasti_dashboard::Running::start(settings, client, held_source).await;
        let running =
            running.with_context(|| format!("the dashboard cannot listen on {listen}"))?;
        tracing::info!(url = running.url(), "dashboard started");
        Ok(Some(running))
    }
}

impl Operator {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let reports = logs::to_stdout()?;
        let settings = Settings::from_environment(&self.flags, |name| std::env::var(name).ok())
            .map_err(|error| Failed::Usage(error.to_string()))?;
        let sentry = settings.sentry.clone();
        exit::run("operator", &reports, sentry, self.until_signal(settings))
    }

    async fn until_signal(self, settings: Settings) -> anyhow::Result<()> {
        let mut signals = EndSignals::listen().context("cannot listen for signals")?;
        let client = kube_client::from_environment().await?;
        let (namespaces, viewer) = (settings.namespaces.clone(), client.clone());
        let running = Running::start(settings, client)
            .await
            .context("cannot start")?;
        let _dashboard = self
            .dashboard
            .start(namespaces, viewer, running.held_counts())
            .await?;
        tracing::info!("operator started");
        signals.next().await;
        tracing::info!("SIGTERM received: stopping");
        running.stop().await;
        Ok(())
    }
}
