//! Six short end-to-end tests: how each begins, what happens on it, and when it has arrived.

use std::fmt;
use std::time::Duration;

use elasti_api::Phase;
use elasti_e2e::{App, MERGE, TestEnv};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::observer::Observer;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    GoingToSleep,
    WakeByRequest,
    WakeByTrigger,
    DeletionAtZero,
    ServiceEditedWhileAsleep,
    ResolversReplaced,
}

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::GoingToSleep => "going to sleep",
            Self::WakeByRequest => "wake by request",
            Self::WakeByTrigger => "wake by trigger",
            Self::DeletionAtZero => "deletion at zero",
            Self::ServiceEditedWhileAsleep => "Service edited while asleep",
            Self::ResolversReplaced => "resolvers replaced",
        })
    }
}

/// Virtual time: the longest fault is a minute, and a back-off may follow it.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Waits until nothing is missing any more.
pub(crate) async fn poll(what: &str, mut missing: impl AsyncFnMut() -> Vec<String>) {
    let started = Instant::now();
    loop {
        let now = missing().await;
        if now.is_empty() {
            return;
        }
        assert!(
            started.elapsed() < TIMEOUT,
            "never: {what}: {}",
            now.join("; ")
        );
        sleep(Duration::from_millis(300)).await;
    }
}

async fn until(app: &App, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    poll(what, async || match holds().await {
        true => Vec::new(),
        false => vec![app.object().await["status"].to_string()],
    })
    .await;
}

impl Scenario {
    pub(crate) const ALL: [Self; 6] = [
        Self::GoingToSleep,
        Self::WakeByRequest,
        Self::WakeByTrigger,
        Self::DeletionAtZero,
        Self::ServiceEditedWhileAsleep,
        Self::ResolversReplaced,
    ];

    /// The app as the scenario finds it: awake for the first, asleep for all others.
    pub(crate) async fn prepare(self, env: &TestEnv) -> App {
        let app = env.deploy("web").await;
        until(&app, "serving", async || {
            let status = app.status().await;
            status.phase == Some(Phase::Serving) && !status.ports.is_empty()
        })
        .await;
        if self == Self::GoingToSleep {
            return app;
        }
        app.idle();
        asleep(&app).await;
        if self == Self::WakeByRequest {
            // Else it would be asleep again before anyone has looked.
            app.edit(json!({"cooldownPeriod": 3600})).await;
            until(&app, "the new cooldown is known", async || {
                app.status().await.observed_generation == Some(2)
            })
            .await;
        }
        app
    }

    /// What happens, until it has arrived.
    pub(crate) async fn play(self, env: &TestEnv, app: &App, observer: &Observer) {
        match self {
            Self::GoingToSleep => {
                app.idle();
                asleep(app).await;
            }
            Self::WakeByRequest => {
                app.get().await.ok();
                serving(app).await;
            }
            Self::WakeByTrigger => {
                app.busy();
                serving(app).await;
            }
            Self::DeletionAtZero => {
                env.api().delete(&app.path()).await;
                until(app, "it is gone", async || app.object().await.is_null()).await;
            }
            Self::ServiceEditedWhileAsleep => {
                let path = format!("{}/web", app.core("services"));
                let ports = json!([
                    {"name": "http", "port": 80, "targetPort": "http"},
                    {"name": "more", "port": 8080, "targetPort": "http"},
                ]);
                let patch = json!({"spec": {"ports": ports}});
                env.api().patch(&path, MERGE, patch).await;
                until(app, "both ports are redirected", async || {
                    let slices = app.resolver_slices().await;
                    slices.len() == 1 && slices[0]["ports"].as_array().map(Vec::len) == Some(2)
                })
                .await;
            }
            Self::ResolversReplaced => {
                let before = env.resolver_addresses();
                env.add_resolver().await;
                observer.resolvers_changed(env);
                env.retire_resolver(0).await;
                // One that ends in order answers until no connection is routed to it any more.
                until(app, "the new one is in the slice, alone", async || {
                    let slices = app.resolver_slices().await;
                    let named = |old: &String| slices.iter().any(|s| s.to_string().contains(old));
                    !slices.is_empty() && !before.iter().any(named)
                })
                .await;
                sleep(Duration::from_secs(2)).await;
                env.kill_resolver(0).await;
                observer.resolvers_changed(env);
            }
        }
    }

    /// Someone who comes when all is done.
    pub(crate) async fn last_visit(self, _: &TestEnv, app: &App) {
        app.get().await.ok();
    }
}

async fn asleep(app: &App) {
    until(app, "asleep", async || {
        app.phase().await == Some(Phase::Asleep) && app.replicas().await == 0
    })
    .await;
}

async fn serving(app: &App) {
    until(app, "serving", async || {
        app.phase().await == Some(Phase::Serving)
            && app.replicas().await > 0
            && app.resolver_slices().await.is_empty()
    })
    .await;
}
