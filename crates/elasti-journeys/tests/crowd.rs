//! A thousand ElastiServices: what the operator costs at rest. Prints figures; fails only far above the goals.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss
)]

use std::time::Duration;

use elasti_journeys::{Neighbourhood, OPERATOR_USER, until};
use elasti_town::faults::{Call, Verb};
use serde_json::json;
use tokio::time::{Instant, sleep};

const SERVICES: usize = 1000;

/// Only watches, their lists, and looks into the cluster that nobody writes by.
fn changes(call: &Call) -> bool {
    call.user == OPERATOR_USER && call.verb.writes() && !call.kind.ends_with("reviews")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_services_at_rest_cost_watches_and_nothing_else() {
    let hood = Neighbourhood::with(|plot| {
        plot.operators = 0;
        plot.resolvers = 0;
        plot.polling_interval = Duration::from_secs(30);
    })
    .await;
    let api = hood.api();
    let prometheus = hood.town().prometheus.address;
    for number in 0..SERVICES {
        let name = format!("web-{number:04}");
        let labels = json!({"app": name});
        api.make("/apis/apps/v1/namespaces/default/deployments", json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "echo:1"}]},
            }},
        }))
        .await;
        api.make("/api/v1/namespaces/default/services", json!({
            "metadata": {"name": name}, "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }))
        .await;
        api.make("/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices", json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService", "metadata": {"name": name},
            "spec": {
                "service": name, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "triggers": [{"type": "prometheus", "metadata": {"query": "up", "threshold": "1", "serverAddress": format!("http://{prometheus}")}}],
            },
        }))
        .await;
    }
    let started = Instant::now();
    hood.add_operator().await;
    println!(
        "lists of {SERVICES} services read after {:?}",
        started.elapsed()
    );
    let faults = hood.town().server.faults();
    let quiet = async || {
        let before = faults.journal().iter().filter(|c| changes(c)).count();
        sleep(Duration::from_secs(3)).await;
        let after = faults.journal().iter().filter(|c| changes(c)).count();
        before == after
    };
    until("everything is written", quiet).await;
    println!("at rest after {:?}", started.elapsed());

    let before = faults.calls();
    let span = Duration::from_secs(40);
    sleep(span).await;
    let mut calls = faults.journal();
    calls.retain(|c| c.number > before && c.user == OPERATOR_USER);
    let writes: Vec<String> = calls
        .iter()
        .filter(|c| changes(c))
        .map(ToString::to_string)
        .collect();
    assert!(writes.is_empty(), "nothing is written at rest: {writes:?}");
    let watches = calls.iter().filter(|c| c.verb == Verb::Watch).count();
    let each_minute = |count: usize| count as f64 * 60.0 / span.as_secs_f64();
    println!(
        "calls a minute at rest: {:.0}, of which watches {:.0}",
        each_minute(calls.len()),
        each_minute(watches)
    );
    let watched = hood.metrics(0);
    let watched: Vec<&str> = watched
        .lines()
        .filter(|l| l.starts_with("elasti_operator_informer_count{"))
        .collect();
    println!("{}", watched.join("\n"));
    assert!(watched.len() <= 8, "one watch a kind: {watched:?}");
}
