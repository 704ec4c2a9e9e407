//! The sample apps that images name, as servers in this process.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use elasti_sample_app::SampleApp;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::visits::Visits;
use crate::api_server::object::Object as _;

/// What an image does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppKind {
    /// Answers HTTP/1.1 and h2c with what it was asked; sends gRPC messages back.
    Echo,
    /// Greets every connection first, then echoes bytes.
    SpeaksFirst,
    /// Runs but never listens.
    NeverListens,
    /// Ends with code 1 after a second.
    Crashes,
    /// Cannot be pulled.
    Missing,
    /// Runs the container's command as a child process.
    Process,
}

/// A container as the kubelet runs it.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) kind: AppKind,
    /// The time before it listens.
    pub(crate) start_after: Duration,
    /// The time that it lives on after SIGTERM, without a listener.
    end_after: Duration,
    pub(crate) ports: Vec<u16>,
    pod: String,
    visits: Visits,
}

impl App {
    /// Reads a container: the image's last path segment names the app, `START_SECONDS` and `END_SECONDS` slow its
    /// start and its end.
    pub(crate) fn from_container(container: &Value, pod: &str, visits: Visits) -> Self {
        let image = container.text("/image");
        let name = image
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .split([':', '@'])
            .next()
            .unwrap_or_default();
        let kind = match name {
            "speaks-first" => AppKind::SpeaksFirst,
            "never-ready" => AppKind::NeverListens,
            "crash-loop" => AppKind::Crashes,
            "missing" => AppKind::Missing,
            "process" => AppKind::Process,
            _ => AppKind::Echo,
        };
        let seconds = |variable: &str, otherwise: f64| {
            let mut variables = container.list("/env").iter();
            let found = variables.find(|one| one.text("/name") == variable);
            let seconds = found.and_then(|one| one.text("/value").parse().ok());
            Duration::try_from_secs_f64(seconds.unwrap_or(otherwise)).unwrap_or_default()
        };
        let start_after = seconds(
            "START_SECONDS",
            if name == "slow-start" { 5.0 } else { 0.0 },
        );
        let mut ports: Vec<u16> = container
            .list("/ports")
            .iter()
            .filter_map(|port| port.number("/containerPort"))
            .filter_map(|port| u16::try_from(port).ok())
            .collect();
        if ports.is_empty() {
            ports.push(8080);
        }
        Self {
            kind,
            start_after,
            end_after: seconds("END_SECONDS", 0.0),
            ports,
            pod: pod.to_owned(),
            visits,
        }
    }

    /// Serves until asked to stop; then the listeners close at once and open requests may end within `grace`.
    pub(crate) async fn serve(
        self,
        address: Ipv4Addr,
        mut stop: watch::Receiver<Option<Duration>>,
    ) {
        tokio::select! {
            () = tokio::time::sleep(self.start_after) => {}
            _ = stop.wait_for(Option::is_some) => return,
        }
        let mut tasks = JoinSet::new();
        if let Some(app) = self.sample_app() {
            for port in &self.ports {
                // A port that is taken is a pod that never gets ready, as it would be in a container.
                let Ok(listener) = TcpListener::bind((address, *port)).await else {
                    continue;
                };
                tasks.spawn(app.clone().serve(listener, stop.clone()));
            }
        }
        let grace = stop
            .wait_for(Option::is_some)
            .await
            .map_or(None, |grace| *grace)
            .unwrap_or_default();
        let finish = async {
            let lives_on = tokio::time::sleep(self.end_after);
            while tasks.join_next().await.is_some() {}
            lives_on.await;
        };
        let _ = tokio::time::timeout(grace, finish).await;
    }

    /// What listens, if anything does.
    fn sample_app(&self) -> Option<SampleApp> {
        let behaviour = match self.kind {
            AppKind::SpeaksFirst => elasti_sample_app::Behaviour::SpeaksFirst,
            AppKind::NeverListens => return None,
            AppKind::Echo | AppKind::Crashes | AppKind::Missing | AppKind::Process => {
                elasti_sample_app::Behaviour::Echo
            }
        };
        let (pod, visits) = (self.pod.clone(), self.visits.clone());
        Some(SampleApp {
            behaviour,
            pod: self.pod.clone(),
            on_visit: Arc::new(move |path| visits.write(&pod, path)),
        })
    }
}
