//! `elasti demo --real`: the same steps in the kubeconfig's cluster, with the Elasti that is installed there.
//! The namespace is removed at the end, after a failure and on Ctrl-C.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use elasti_runtime::signals::EndSignals;
use kube::Client;

use super::printer::Printer;
use super::real_cluster::{self, AppOptions, Host, RealCluster};
use super::story::{ROUND_PAUSE, Story};
use elasti_cli::access::Access;
use elasti_runtime::exit::Failed;

/// Polling, cooldown, a kubelet's tick and settle times have their full length there.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(240);

/// Options of `--real`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Real {
    /// Use the kubeconfig's cluster, where Elasti is installed, with a namespace of its own that is removed at the end
    #[arg(long)]
    pub(crate) real: bool,
    /// Image of the app, for --real: serves HTTP on port 8080, and the request's headers as JSON on /headers
    #[arg(
        long,
        value_name = "IMAGE",
        requires = "real",
        default_value = "docker.io/mccutchen/go-httpbin:v2.15.0"
    )]
    image: String,
    /// URL of Prometheus as pods reach it, for --real; default: the operator's own
    #[arg(long, value_name = "URL", requires = "real")]
    prometheus: Option<String>,
    /// Context of the kubeconfig, for --real; default: its current one
    #[arg(long, value_name = "CONTEXT", requires = "real")]
    context: Option<String>,
    /// Path of the kubeconfig, for --real; default: $KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", requires = "real")]
    kubeconfig: Option<PathBuf>,
}

/// How to run, on either backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOptions {
    pub(crate) once: bool,
    pub(crate) services: u16,
    pub(crate) cold_start: Duration,
    pub(crate) load: bool,
    pub(crate) timeout: Duration,
}

impl Real {
    pub(crate) async fn run(self, options: RunOptions) -> Result<(), Failed> {
        let mut signals = EndSignals::listen().context("cannot listen for signals")?;
        let printer = Printer::new();
        let access = Access::new(self.context.clone(), self.kubeconfig.clone());
        let client = access.connect().await?.client;
        let finding = Host::find(&client, self.prometheus.clone());
        let host = printer
            .while_waiting("checking the cluster", finding)
            .await?;
        let namespace = real_cluster::make_namespace(&client).await?;
        self.introduce(&printer, &host, &namespace);
        let app = AppOptions {
            services: options.services,
            cold_start: options.cold_start,
            image: self.image,
        };
        let ended = tokio::select! {
            ended = run_steps(&printer, &client, host, &namespace, &app, options) => ended,
            () = signals.next() => {
                printer.clear_progress();
                printer.line("");
                printer.line("Stopped.");
                match options.once {
                    true => Err(anyhow!("interrupted before the end").into()),
                    false => Ok(()),
                }
            }
        };
        let removed = tokio::select! {
            removed = remove(&printer, &client, &namespace) => removed,
            () = signals.next() => Err(anyhow!("interrupted")),
        };
        let removed = removed.with_context(|| {
            format!(
                "namespace {namespace} may be left; remove it: kubectl delete namespace {namespace}"
            )
        });
        // The first failure is the one to report.
        ended.and(removed.map_err(Failed::from))
    }

    fn introduce(&self, printer: &Printer, host: &Host, namespace: &str) {
        printer.line(&format!(
            "Elasti demo in a real cluster: Kubernetes {}, Elasti installed in namespace {}.",
            host.version, host.namespace
        ));
        printer.line(&format!(
            "Namespace {namespace} is created for it, and removed at the end. The app is {}.",
            self.image
        ));
        printer.line("No Prometheus scrapes this app, so its trigger is always quiet: it may sleep as soon as its cooldown after a wake is over.");
        printer.line(&format!("Watch:  kubectl -n {namespace} get els --watch"));
        printer.line("");
    }
}

async fn run_steps(
    printer: &Printer,
    client: &Client,
    host: Host,
    namespace: &str,
    app: &AppOptions,
    options: RunOptions,
) -> Result<(), Failed> {
    let creating = RealCluster::create(client, host, namespace, app);
    let backend = printer.while_waiting("creating objects", creating).await?;
    let story = Story {
        printer,
        backend: &backend,
        load: options.load,
        timeout: options.timeout,
    };
    loop {
        story.run().await?.verdict()?;
        if options.once {
            return Ok(());
        }
        story.pause(ROUND_PAUSE).await;
    }
}

async fn remove(printer: &Printer, client: &Client, namespace: &str) -> anyhow::Result<()> {
    let removing = real_cluster::remove_namespace(client, namespace);
    printer
        .while_waiting("removing the namespace", removing)
        .await?;
    printer.line(&format!(
        "Removed: namespace {namespace} and everything in it."
    ));
    Ok(())
}
