//! Requests to many sleeping services at once: how long until each target's scale is written, and until each is answered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elasti_e2e::{TestEnv, get};
use elasti_runtime::watch::{Collection, Event, Watch};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

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
    let names = addresses.iter().map(|(name, _)| name.clone()).collect();
    let mut awake = follow(env).await;
    let sent = Instant::now();
    let clients: Vec<_> = { addresses.into_iter() }
        .map(|(_, address)| {
            tokio::spawn(async move {
                let outcome = match get(&address, "/wake").await {
                    Ok(answer) => answer.code().to_string(),
                    Err(lost) => format!("{lost:?}"),
                };
                (outcome, sent.elapsed())
            })
        })
        .collect();
    let scaled = scaled(&mut awake, names, sent).await;
    let mut answers = Vec::with_capacity(at_once);
    let mut lost: BTreeMap<String, usize> = BTreeMap::new();
    for client in clients {
        let (outcome, took) = client.await.unwrap();
        match outcome.as_str() {
            "200" => answers.push(took),
            _ => *lost.entry(outcome).or_default() += 1,
        }
    }
    println!(
        "{at_once} wakes at once: {} scales written, p50 {:.2?}, p99 {:.2?}; {} answered, p50 {:.2?}, p99 {:.2?}; {} lost {lost:?}",
        scaled.len(),
        percentile(&scaled, 50),
        percentile(&scaled, 99),
        answers.len(),
        percentile(&answers, 50),
        percentile(&answers, 99),
        lost.values().sum::<usize>(),
    );
}

/// Tells of each Deployment that is seen with replicas from now on. The watch goes on where one before it ended: the API
/// server ends one that does not keep up.
async fn follow(env: &TestEnv) -> mpsc::UnboundedReceiver<(String, Instant)> {
    let deployments: Api<Deployment> = Api::all(env.api().0.clone());
    let collection = Collection {
        path: deployments.resource_url().to_owned(),
        ..Collection::default()
    };
    let watch = Watch::new(deployments.into_client(), collection, version_of);
    let (send, awake) = mpsc::unbounded_channel();
    let (opened, mut open) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let tell = |object: Deployment| {
            if object.spec.and_then(|spec| spec.replicas) > Some(0) {
                // The receiver has gone once it has seen all.
                let _ = send.send((object.metadata.name.unwrap(), Instant::now()));
            }
        };
        let on_event = |event, _: &str| match event {
            Event::Listed(objects) => objects.into_iter().for_each(tell),
            Event::Applied(object) => tell(object),
            Event::Watching => drop(opened.send(())),
            Event::Failed { error, .. } => println!("watch of the Deployments: {error}"),
            Event::Calling | Event::Listing | Event::Alive | Event::Deleted(_) => {}
        };
        tokio::select! {
            () = watch.run(on_event) => {}
            () = send.closed() => {}
        }
    });
    open.recv().await.unwrap();
    awake
}

fn version_of(object: &Deployment) -> Option<&str> {
    object.metadata.resource_version.as_deref()
}

/// How long it took until each of these Deployments was seen with replicas; those that were not within the limit are
/// missing.
async fn scaled(
    awake: &mut mpsc::UnboundedReceiver<(String, Instant)>,
    mut missing: HashSet<String>,
    sent: Instant,
) -> Vec<Duration> {
    let mut took: HashMap<String, Duration> = HashMap::new();
    while !missing.is_empty() {
        let Ok(Some((name, at))) = timeout_at(sent + LIMIT, awake.recv()).await else {
            break;
        };
        if missing.remove(&name) {
            took.insert(name, at.saturating_duration_since(sent));
        }
    }
    took.into_values().collect()
}

fn percentile(spans: &[Duration], percent: usize) -> Duration {
    let mut sorted = spans.to_vec();
    sorted.sort();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}
