//! `elasti demo`: the story of one sleep and one wake, told from what is observed in a simulated cluster in this process, or in a cluster.
//! It never needs a cluster, root, Docker or Prometheus unless asked for `--real`, and never says what it has not seen.

mod backend;
mod demo_cluster;
mod ledger;
mod objects;
mod printer;
mod real;
mod real_cluster;
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
use real::{Manner, Real};
use story::Story;

/// Shorter, and the first request could be answered before anybody sees that it is held.
const SHORTEST_COLD_START: Duration = Duration::from_millis(200);
/// The chart's default settle time.
const USUAL_SETTLE_SECONDS: u64 = 2;
/// Everything in the simulated cluster takes milliseconds, but for the app's start.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Shows how a service falls asleep and is woken by a request, in this process, without a cluster.
///
/// The operator and the resolver are the real ones; Kubernetes, its nodes and Prometheus are models. Without --once the
/// story is told again and again, and you can send requests and use kubectl meanwhile; Ctrl-C ends it. With --real
/// nothing is a model: it needs the right to create namespaces, and in them everything, and to get pods/proxy of the
/// resolvers, whose metrics tell what they hold.
#[derive(Args, Debug)]
pub struct Demo {
    /// Tell the story once and exit: 0 if every step came and no request was lost, else 1
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
    /// How long one step of the story may take before it counts as failed; default: 60s, with --real 4m
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
    if time < SHORTEST_COLD_START {
        return Err("write at least 200ms: a shorter start cannot be watched".to_owned());
    }
    Ok(time)
}

/// The same page that `elasti dashboard` serves, on a free port of this machine.
async fn serve_dashboard(hood: &DemoCluster) -> std::io::Result<elasti_dashboard::Running> {
    let settings = elasti_dashboard::Settings {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        namespaces: Vec::new(),
        hosts: Vec::new(),
        writes: true,
        price: None,
        place: "demo".to_owned(),
        explain: Some(elasti_cli::why::for_page()),
    };
    let held_source = Proxy::new(hood.client());
    elasti_dashboard::Running::start(settings, hood.client(), held_source).await
}

impl Demo {
    /// Tells the story.
    pub fn run(self) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("no runtime")?;
        let ended = runtime.block_on(async {
            match self.real.real {
                true => self.real.clone().tell(self.manner(real::TIMEOUT)).await,
                false => self.until_told().await.map_err(Failed::from),
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended
    }

    fn manner(&self, usual_patience: Duration) -> Manner {
        Manner {
            once: self.once,
            services: self.services,
            cold_start: self.cold_start,
            load: self.load,
            patience: self.patience.unwrap_or(usual_patience),
        }
    }

    async fn until_told(self) -> anyhow::Result<()> {
        let mut signals = EndSignals::listen().context("signals cannot be taken over")?;
        let printer = Printer::new();
        self.introduce(&printer);
        let starting = DemoCluster::start(self.services, self.cold_start);
        let hood = tokio::select! {
            hood = printer.while_waiting("the simulated cluster starts", starting) => hood.context("the simulated cluster cannot start")?,
            () = signals.next() => return self.interrupted(&printer),
        };
        let dashboard = serve_dashboard(&hood)
            .await
            .context("the dashboard's port")?;
        self.show_the_doors(&printer, &hood, &dashboard);
        let ended = tokio::select! {
            ended = self.tell(&printer, &hood) => ended,
            () = signals.next() => self.interrupted(&printer),
        };
        hood.stop().await;
        ended
    }

    async fn tell(&self, printer: &Printer, hood: &DemoCluster) -> anyhow::Result<()> {
        let story = Story {
            printer,
            backend: hood,
            load: self.load,
            patience: self.patience.unwrap_or(TIMEOUT),
        };
        loop {
            story.tell().await?.verdict()?;
            if self.once {
                return Ok(());
            }
            story.rest().await;
        }
    }

    fn introduce(&self, printer: &Printer) {
        printer.say("Elasti demo: a small Kubernetes in this process, with the real operator and the real resolver.");
        printer.say(&format!(
            "Times are shortened: cooldown {COOLDOWN_SECONDS} s instead of {} s, settle {SETTLE_MILLIS} ms instead of {USUAL_SETTLE_SECONDS} s. The app takes {:?} to start.",
            elasti_api::DEFAULT_COOLDOWN_SECONDS,
            self.cold_start,
        ));
    }

    fn show_the_doors(
        &self,
        printer: &Printer,
        hood: &DemoCluster,
        dashboard: &elasti_dashboard::Running,
    ) {
        printer.say(&format!("Look:   {}", dashboard.url()));
        printer.say(&format!(
            "Watch:  kubectl --kubeconfig {} get els",
            hood.kubeconfig().display()
        ));
        for service in hood.services() {
            printer.say(&format!("Visit:  curl {}", service.url()));
        }
        printer.say("");
    }

    /// Someone who ends a story that was to be told once has not heard its end.
    fn interrupted(&self, printer: &Printer) -> anyhow::Result<()> {
        printer.hush();
        printer.say("");
        printer.say(
            "Stopped: simulated cluster, operator and resolver end, and the kubeconfig is deleted.",
        );
        match self.once {
            true => Err(anyhow!("interrupted before the story's end")),
            false => Ok(()),
        }
    }
}
