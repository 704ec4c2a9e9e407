//! When everything is written, and what the processes ask the API server while nothing happens.

use std::collections::BTreeMap;
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{OPERATOR_USER, RESOLVER_USER, TestEnv};
use elasti_fake_cluster::faults::Call;
use tokio::time::{Instant, sleep};

const REST_DURATION: Duration = Duration::from_secs(60);
/// Nothing written for this long: everything is.
const QUIET: Duration = Duration::from_secs(5);
/// The longest that it may take to write everything.
const LIMIT: Duration = Duration::from_mins(20);
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// The leader renews its lease for as long as it lives, which shows by its kind; nothing else may be written at rest.
fn changes(call: &Call) -> bool {
    let renewal = call.kind == "leases" || call.kind.ends_with("reviews");
    call.user == OPERATOR_USER && call.verb.writes() && !renewal
}

/// Every one of so many services has its slice, and nothing more is written.
pub(crate) async fn until_written(env: &TestEnv, services: usize) {
    let faults = env.fake_cluster().server.faults();
    let last = || {
        let calls = faults.journal();
        calls
            .iter()
            .rev()
            .find(|call| changes(call))
            .map(|call| call.number)
    };
    let started = Instant::now();
    loop {
        let before = last();
        sleep(QUIET).await;
        if before.is_some() && before == last() && slices(env).await.len() == services {
            return;
        }
        assert!(started.elapsed() < LIMIT, "not every service has its slice");
    }
}

/// The addresses in our slice of each service.
pub(crate) async fn slices(env: &TestEnv) -> Vec<Vec<String>> {
    let ours = format!(
        "{}={}",
        names::SLICE_MANAGED_BY_LABEL,
        names::SLICE_MANAGED_BY_ELASTI
    );
    let path = format!(
        "{SLICES}?labelSelector={}",
        ours.replace('/', "%2F").replace('=', "%3D")
    );
    let addresses = |slice: &serde_json::Value| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let address = |one: &serde_json::Value| one["addresses"][0].as_str().unwrap().to_owned();
        endpoints.map(address).collect()
    };
    env.api().items(&path).await.iter().map(addresses).collect()
}

pub(crate) async fn tell(env: &TestEnv, operators: usize, resolvers: usize) {
    let faults = env.fake_cluster().server.faults();
    let before = faults.calls();
    sleep(REST_DURATION).await;
    let mut calls = faults.journal();
    calls.retain(|call| call.number > before);
    for (user, processes) in [(OPERATOR_USER, operators), (RESOLVER_USER, resolvers)] {
        let of_user: Vec<&Call> = calls.iter().filter(|call| call.user == user).collect();
        let writes = of_user.iter().filter(|call| changes(call)).count();
        let leases = of_user.iter().filter(|call| call.kind == "leases").count();
        let others = of_user.len() - leases;
        println!(
            "{user} at rest for {REST_DURATION:?}: {} calls of each of {processes} processes, {writes} writes; {leases} lease calls of all",
            others / processes,
        );
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for call in of_user {
            let kind = format!("{} {}/{}", call.verb.as_str(), call.kind, call.subresource);
            *kinds.entry(kind).or_default() += 1;
        }
        println!("  {kinds:?}");
    }
}
