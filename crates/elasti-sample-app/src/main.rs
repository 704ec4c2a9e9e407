//! The sample app as a program for a real node.
//! Never listens longer than until SIGTERM: many apps are like that, and it is the hard case.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use elasti_sample_app::{Manner, SampleApp};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Open requests may end within this time; it is below every pod's grace period.
const GRACE: Duration = Duration::from_secs(20);

/// What its environment says: the same words that the simulated cluster reads from a pod.
struct Wish {
    /// The name of the simulated cluster's image: `echo`, `speaks-first`, `never-ready` or `crash-loop`.
    name: String,
    ports: Vec<u16>,
    start_after: Duration,
    pod: String,
}

impl Wish {
    fn read() -> Result<Self, Box<dyn Error>> {
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
    let wish = Wish::read()?;
    let mut told_to_end = signal(SignalKind::terminate())?;
    tokio::select! {
        () = tokio::time::sleep(wish.start_after) => {}
        _ = told_to_end.recv() => return Ok(ExitCode::SUCCESS),
    }
    if wish.name == "crash-loop" {
        tokio::time::sleep(Duration::from_secs(1)).await;
        return Ok(ExitCode::FAILURE);
    }
    let (stop, stopped) = watch::channel(None);
    let mut serving = JoinSet::new();
    if wish.name != "never-ready" {
        let app = SampleApp {
            manner: match wish.name.as_str() {
                "speaks-first" => Manner::SpeaksFirst,
                _ => Manner::Echo,
            },
            pod: wish.pod,
            on_visit: Arc::new(|_| {}),
        };
        for port in wish.ports {
            let listener = TcpListener::bind(("::", port)).await?;
            serving.spawn(app.clone().serve(listener, stopped.clone()));
        }
    }
    told_to_end.recv().await;
    stop.send_replace(Some(GRACE));
    let ended = async { while serving.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, ended).await;
    Ok(ExitCode::SUCCESS)
}
