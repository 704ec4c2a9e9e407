//! When everything is written, and what the processes ask the API server while nothing happens.

use std::collections::BTreeMap;
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{OPERATOR_USER, RESOLVER_USER, TestEnv};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::calls::{Call, Calls};

/// A watch lasts almost as long.
const REST_DURATION: Duration = Duration::from_mins(5);
/// Nothing written for this long: everything is.
const QUIET: Duration = Duration::from_secs(5);
/// The longest that it may take to write everything.
const LIMIT: Duration = Duration::from_mins(40);
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

/// Every one of so many services has its slice, and nothing more is written.
pub(crate) async fn until_written(env: &TestEnv, calls: &Calls, services: usize) {
    let started = Instant::now();
    loop {
        let before = calls.position();
        sleep(QUIET).await;
        let written = calls.since(before).iter().any(Call::changes);
        if !written && slices(env).await.len() == services {
            return;
        }
        assert!(started.elapsed() < LIMIT, "not every service has its slice");
    }
}

/// The addresses in our slice of each service.
pub(crate) async fn slices(env: &TestEnv) -> Vec<Vec<String>> {
    let addresses = |slice: &Value| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let address = |one: &Value| one["addresses"][0].as_str().unwrap().to_owned();
        endpoints.map(address).collect()
    };
    let slices = slices_with(env, names::SLICE_MANAGED_BY_LABEL).await;
    slices.iter().map(addresses).collect()
}

/// Our slices that this selector chooses.
pub(crate) async fn slices_with(env: &TestEnv, selector: &str) -> Vec<Value> {
    let ours = names::SLICE_MANAGED_BY_ELASTI;
    let selector = format!("{}={ours},{selector}", names::SLICE_MANAGED_BY_LABEL);
    let selector = selector.replace('/', "%2F").replace('=', "%3D");
    let path = format!("{SLICES}?labelSelector={selector}");
    env.api().items(&path).await
}

pub(crate) async fn tell(calls: &Calls, operators: usize, resolvers: usize) {
    let before = calls.position();
    sleep(REST_DURATION).await;
    let calls = calls.since(before);
    for (user, processes) in [(OPERATOR_USER, operators), (RESOLVER_USER, resolvers)] {
        let of_user: Vec<&Call> = calls.iter().filter(|call| call.user == user).collect();
        let writes = of_user.iter().filter(|call| call.changes()).count();
        let leases = of_user.iter().filter(|call| call.kind == "leases").count();
        let minutes = REST_DURATION.as_secs_f64() / 60.0;
        let others = (of_user.len() - leases) as f64 / minutes / processes as f64;
        println!(
            "{user} at rest: {others:.1} calls a minute of each of {processes} processes and {:.1} for the lease of all; {writes} writes",
            leases as f64 / minutes,
        );
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for call in of_user {
            let kind = format!("{} {}/{}", call.verb, call.kind, call.subresource);
            *kinds.entry(kind).or_default() += 1;
        }
        println!("  {kinds:?}");
    }
}
