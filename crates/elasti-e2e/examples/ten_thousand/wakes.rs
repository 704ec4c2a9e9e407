//! Requests to many sleeping services at once: how long until each target's scale is written, and until each is answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elasti_e2e::{TestEnv, get};
use futures::TryStreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::time::{Instant, timeout};

use crate::objects;

/// The longest that a scale may take to be written.
const LIMIT: Duration = Duration::from_mins(2);

/// The next service that sleeps.
static NEXT: AtomicUsize = AtomicUsize::new(0);

pub(crate) async fn tell(env: &TestEnv, at_once: usize) {
    let first = NEXT.fetch_add(at_once, Ordering::Relaxed);
    let mut addresses = Vec::with_capacity(at_once);
    for number in first..first + at_once {
        addresses.push((objects::name(number), objects::address(env, number).await));
    }
    let deployments: Api<Deployment> = Api::namespaced(env.api().0.clone(), objects::NAMESPACE);
    let listed = deployments.list(&ListParams::default().limit(1)).await;
    let listed = listed.unwrap();
    let version = listed.metadata.resource_version.unwrap();
    let sent = Instant::now();
    let clients: Vec<_> = { addresses.iter().cloned() }
        .map(|(_, address)| {
            tokio::spawn(async move {
                let answer = get(&address, "/wake").await;
                (
                    answer.is_ok_and(|answer| answer.code() == 200),
                    sent.elapsed(),
                )
            })
        })
        .collect();
    let scaled = timeout(LIMIT, scaled(&deployments, &version, at_once, sent)).await;
    let scaled = scaled.expect("not every scale was written");
    let mut answers = Vec::with_capacity(at_once);
    let mut lost = 0;
    for client in clients {
        let (answered, took) = client.await.unwrap();
        lost += usize::from(!answered);
        answers.push(took);
    }
    println!(
        "{at_once} wakes at once: scale written p50 {:.1?}, p99 {:.1?}; answered p50 {:.1?}, p99 {:.1?}, {lost} lost",
        percentile(&scaled, 50),
        percentile(&scaled, 99),
        percentile(&answers, 50),
        percentile(&answers, 99),
    );
}

/// When each of so many Deployments was seen with replicas.
async fn scaled(
    deployments: &Api<Deployment>,
    version: &str,
    count: usize,
    sent: Instant,
) -> Vec<Duration> {
    let mut seen: HashMap<String, Duration> = HashMap::new();
    let params = WatchParams::default().timeout(290);
    let stream = deployments.watch(&params, version).await.unwrap();
    let mut stream = std::pin::pin!(stream);
    while seen.len() < count {
        let event = stream.try_next().await.unwrap().expect("the watch ended");
        let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
            continue;
        };
        if object.spec.and_then(|spec| spec.replicas) > Some(0) {
            let name = object.metadata.name.unwrap();
            seen.entry(name).or_insert_with(|| sent.elapsed());
        }
    }
    seen.into_values().collect()
}

fn percentile(spans: &[Duration], percent: usize) -> Duration {
    let mut sorted = spans.to_vec();
    sorted.sort();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted[at]
}
