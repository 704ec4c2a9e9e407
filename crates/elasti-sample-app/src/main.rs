//! The sample app as a program for a real node. It stops listening at SIGTERM: many apps do, and it is the hard case.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use elasti_sample_app::{Behaviour, SampleApp};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Open requests may end within this time; it is below every pod's grace period.
const GRACE_PERIOD: Duration = Duration::from_secs(20);

/// From the environment, with the names that the simulated cluster reads from a pod.
struct Config {
    /// The name of the simulated cluster's image: `echo`, `speaks-first`, `never-ready` or `crash-loop`.
    name: String,
    ports: Vec<u16>,
    start_after: Duration,
    /// How long it lives on after SIGTERM, without a listener.
    end_after: Duration,
    pod: String,
}

impl Config {
    fn from_env() -> Result<Self, Box<dyn Error>> {
        let text = |name: &str, default: &str| {
            let value = std::env::var(name).unwrap_or_default();
            if value.is_empty() {
                default.to_owned()
            } else {
                value
            }
        };
        let ports = text("PORTS", "8080");
        let ports: Result<_, _> = ports.split_whitespace().map(str::parse).collect();
        Ok(Self {
            name: text("SAMPLE_APP", "echo"),
            ports: ports?,
            start_after: Duration::try_from_secs_f64(text("START_SECONDS", "0").parse()?)?,
            end_after: Duration::try_from_secs_f64(text("END_SECONDS", "0").parse()?)?,
            pod: text("POD_NAME", "unnamed"),
        })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, Box<dyn Error>> {
    let config = Config::from_env()?;
    let mut sigterm = signal(SignalKind::terminate())?;
    tokio::select! {
        () = tokio::time::sleep(config.start_after) => {}
        _ = sigterm.recv() => return Ok(ExitCode::SUCCESS),
    }
    if config.name == "crash-loop" {
        tokio::time::sleep(Duration::from_secs(1)).await;
        return Ok(ExitCode::FAILURE);
    }
    let (stop, stopped) = watch::channel(None);
    let mut serving = JoinSet::new();
    if config.name != "never-ready" {
        let app = SampleApp {
            behaviour: match config.name.as_str() {
                "speaks-first" => Behaviour::SpeaksFirst,
                _ => Behaviour::Echo,
            },
            pod: config.pod,
            on_visit: Arc::new(|_| {}),
        };
        for port in config.ports {
            let listener = TcpListener::bind(("::", port)).await?;
            serving.spawn(app.clone().serve(listener, stopped.clone()));
        }
    }
    sigterm.recv().await;
    stop.send_replace(Some(GRACE_PERIOD));
    let ended = async {
        let lives_on = tokio::time::sleep(config.end_after);
        while serving.join_next().await.is_some() {}
        lives_on.await;
    };
    let _ = tokio::time::timeout(GRACE_PERIOD, ended).await;
    Ok(ExitCode::SUCCESS)
}
