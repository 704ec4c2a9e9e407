//! `elasti demo`: one sleep and one wake, in a simulated cluster in this process or, with `--real`, in a real one.
//! Never prints what it has not observed.

mod backend;
mod demo_cluster;
mod installation;
mod objects;
mod printer;
mod readings;
mod real;
mod real_cluster;
mod request_log;
mod story;
mod timeline;
mod traffic;
mod visitors;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use elasti_core::schedule::parse_go_duration;
use elasti_runtime::signals::EndSignals;

use backend::Backend as _;
use demo_cluster::{COOLDOWN_SECONDS, DemoCluster, SETTLE_MILLIS};
use elasti_dashboard::held::Proxy;
use elasti_runtime::exit::Failed;
use printer::Printer;
use real::{Real, RunOptions};
use story::Story;

/// With a shorter one, the first request could be answered before it is seen to be held.
const MIN_COLD_START: Duration = Duration::from_millis(200);
/// The chart's default settle time.
const DEFAULT_SETTLE_SECONDS: u64 = 2;
/// Everything in the simulated cluster takes milliseconds, except the app's start.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Shows how a service falls asleep and is woken by a request, in this process, without a cluster.
///
/// The operator and the resolver are the real ones; Kubernetes, its nodes and Prometheus are simulated. Without --once
/// the demo repeats, and you can send requests and use kubectl meanwhile; Ctrl-C ends it. With --real nothing is
/// simulated: it needs permission to create namespaces and anything in them, and to get pods/proxy of the resolvers,
/// whose metrics show what they hold.
#[derive(Args, Debug)]
pub struct Demo {
    /// Run once and exit: 0 if every step happened and no request was lost, else 1
    #[arg(long)]
    once: bool,
    /// How many services sleep and wake
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=50))]
    services: u16,
    /// How long the app takes to start, at least 200ms
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = cold_start)]
    cold_start: Duration,
    /// Send 20 requests a second to every service from the wake until the pods answer directly
    #[arg(long)]
    load: bool,
    /// Timeout of one step; default: 60s, with --real 4m
    #[arg(long, value_name = "TIME", value_parser = time)]
    patience: Option<Duration>,
    #[command(flatten)]
    real: Real,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_go_duration(text)
        .and_then(|time| Duration::try_from(time).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "write a time such as 500ms, 2s or 1m".to_owned())
}

fn cold_start(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time < MIN_COLD_START {
        return Err("write at least 200ms: a shorter start is too fast to observe".to_owned());
    }
    Ok(time)
}

/// The same page that `elasti dashboard` serves, on a free port of this machine.
async fn serve_dashboard(cluster: &DemoCluster) -> std::io::Result<elasti_dashboard::Running> {
    let settings = elasti_dashboard::Settings {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        namespaces: Vec::new(),
        hosts: Vec::new(),
        writes: true,
        price: None,
        place: "demo".to_owned(),
        explain: Some(elasti_cli::why::for_page()),
    };
    let held_source = Proxy::new(cluster.client());
    elasti_dashboard::Running::start(settings, cluster.client(), held_source).await
}

impl Demo {
    /// Runs the demo.
    pub fn run(self) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        let ended = runtime.block_on(async {
            match self.real.real {
                true => {
                    self.real
                        .clone()
                        .run(self.run_options(real::STEP_TIMEOUT))
                        .await
                }
                false => self.simulate().await.map_err(Failed::from),
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended
    }

    fn run_options(&self, default_timeout: Duration) -> RunOptions {
        RunOptions {
            once: self.once,
            services: self.services,
            cold_start: self.cold_start,
            load: self.load,
            timeout: self.patience.unwrap_or(default_timeout),
        }
    }

    async fn simulate(self) -> anyhow::Result<()> {
        let mut signals = EndSignals::listen().context("cannot listen for signals")?;
        let printer = Printer::new();
        self.introduce(&printer);
        let starting = DemoCluster::start(self.services, self.cold_start);
        let cluster = tokio::select! {
            cluster = printer.while_waiting("starting the simulated cluster", starting) => cluster.context("cannot start the simulated cluster")?,
            () = signals.next() => return self.interrupted(&printer),
        };
        let dashboard = serve_dashboard(&cluster)
            .await
            .context("cannot start the dashboard")?;
        self.print_addresses(&printer, &cluster, &dashboard);
        let ended = tokio::select! {
            ended = self.repeat(&printer, &cluster) => ended,
            () = signals.next() => self.interrupted(&printer),
        };
        cluster.stop().await;
        ended
    }

    async fn repeat(&self, printer: &Printer, cluster: &DemoCluster) -> anyhow::Result<()> {
        let story = Story {
            printer,
            backend: cluster,
            load: self.load,
            timeout: self.patience.unwrap_or(STEP_TIMEOUT),
        };
        match self.once {
            true => story.run().await?.verdict(),
            false => story.repeat().await,
        }
    }

    fn introduce(&self, printer: &Printer) {
        printer.line("Elasti demo: a simulated cluster in this process, with the real operator and the real resolver.");
        printer.line(&format!(
            "Times are shortened: cooldown {COOLDOWN_SECONDS} s instead of {} s, settle {SETTLE_MILLIS} ms instead of {DEFAULT_SETTLE_SECONDS} s. The app takes {:?} to start.",
            elasti_api::DEFAULT_COOLDOWN_SECONDS,
            self.cold_start,
        ));
    }

    fn print_addresses(
        &self,
        printer: &Printer,
        cluster: &DemoCluster,
        dashboard: &elasti_dashboard::Running,
    ) {
        printer.line(&format!("Dashboard:  {}", dashboard.url()));
        printer.line(&format!(
            "Watch:      kubectl --kubeconfig {} get els",
            cluster.kubeconfig().display()
        ));
        printer.line(&format!(
            "Ask:        elasti why {} --kubeconfig {}",
            cluster.services().first().map_or("", |one| &one.name),
            cluster.kubeconfig().display(),
        ));
        for service in cluster.services() {
            let (url, name) = (service.url(), &service.name);
            printer.line(&format!("Request:    curl {url}  # Service {name}"));
        }
        printer.line("");
    }

    /// With `--once` an interrupted run has failed.
    fn interrupted(&self, printer: &Printer) -> anyhow::Result<()> {
        printer.clear_progress();
        printer.line("");
        printer.line(
            "Stopped: the simulated cluster, operator and resolver are gone, and the kubeconfig is deleted.",
        );
        match self.once {
            true => Err(anyhow!("interrupted before the end")),
            false => Ok(()),
        }
    }
}
