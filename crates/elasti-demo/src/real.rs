//! `elasti demo --real`: the same story in the kubeconfig's cluster, with Elasti as it is installed there.
//! Never leaves what it made: the namespace goes at the end of the story, after a failure and on Ctrl-C.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use elasti_runtime::signals::EndSignals;
use kube::Client;

use super::printer::Printer;
use super::real_cluster::{self, Host, RealCluster, Wish};
use super::story::Story;
use elasti_cli::access::Access;
use elasti_runtime::exit::Failed;

/// Polling, cooldown, a kubelet's tick and settle times have their full length there.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(240);

/// Options of a story in a real cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct Real {
    /// Tell the story in the kubeconfig's cluster, where Elasti is installed, in a namespace of its own that is removed
    /// at the end
    #[arg(long)]
    pub(crate) real: bool,
    /// The app of --real: answers HTTP on port 8080, and /headers with the request's fields as JSON
    #[arg(
        long,
        value_name = "IMAGE",
        requires = "real",
        default_value = "docker.io/mccutchen/go-httpbin:v2.15.0"
    )]
    image: String,
    /// The Prometheus of --real as pods reach it; default: the operator's own
    #[arg(long, value_name = "URL", requires = "real")]
    prometheus: Option<String>,
    /// Context of the kubeconfig, for --real; default: its current one
    #[arg(long, value_name = "CONTEXT", requires = "real")]
    context: Option<String>,
    /// Path of the kubeconfig, for --real; default: $KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", requires = "real")]
    kubeconfig: Option<PathBuf>,
}

/// How a story is told, wherever it plays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) once: bool,
    pub(crate) services: u16,
    pub(crate) cold_start: Duration,
    pub(crate) load: bool,
    pub(crate) patience: Duration,
}

impl Real {
    pub(crate) async fn tell(self, manner: Manner) -> Result<(), Failed> {
        let mut signals = EndSignals::listen().context("signals cannot be taken over")?;
        let printer = Printer::new();
        let access = Access::new(self.context.clone(), self.kubeconfig.clone());
        let client = access.connect().await?.client;
        let finding = Host::find(&client, self.prometheus.clone());
        let host = printer
            .while_waiting("looking at the cluster", finding)
            .await?;
        let namespace = real_cluster::make_namespace(&client).await?;
        self.introduce(&printer, &host, &namespace);
        let wish = Wish {
            services: manner.services,
            cold_start: manner.cold_start,
            image: self.image,
        };
        let ended = tokio::select! {
            ended = play(&printer, &client, host, &namespace, &wish, manner) => ended,
            () = signals.next() => {
                printer.hush();
                printer.say("");
                printer.say("Stopped.");
                match manner.once {
                    true => Err(anyhow!("interrupted before the story's end").into()),
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
        // What failed first is what counts.
        ended.and(removed.map_err(Failed::from))
    }

    fn introduce(&self, printer: &Printer, host: &Host, namespace: &str) {
        printer.say(&format!(
            "Elasti demo in a real cluster: Kubernetes {}, with Elasti as it is installed in namespace {}.",
            host.version, host.namespace
        ));
        printer.say(&format!(
            "Namespace {namespace} is made for it, and removed at the end. The app is {}.",
            self.image
        ));
        printer.say("No Prometheus knows this app, so its trigger is always quiet: it may sleep as soon as its cooldown after a wake is over.");
        printer.say(&format!("Watch:  kubectl -n {namespace} get els --watch"));
        printer.say("");
    }
}

async fn play(
    printer: &Printer,
    client: &Client,
    host: Host,
    namespace: &str,
    wish: &Wish,
    manner: Manner,
) -> Result<(), Failed> {
    let furnishing = RealCluster::furnish(client, host, namespace, wish);
    let backend = printer
        .while_waiting("objects are made", furnishing)
        .await?;
    let story = Story {
        printer,
        backend: &backend,
        load: manner.load,
        patience: manner.patience,
    };
    loop {
        story.tell().await?.verdict()?;
        if manner.once {
            return Ok(());
        }
        story.rest().await;
    }
}

async fn remove(printer: &Printer, client: &Client, namespace: &str) -> anyhow::Result<()> {
    let removing = real_cluster::remove_namespace(client, namespace);
    printer
        .while_waiting("the namespace goes", removing)
        .await?;
    printer.say(&format!(
        "Removed: namespace {namespace} is gone, with all that was made in it."
    ));
    Ok(())
}
