//! Entry points of the fuzz targets in `fuzz/`: a head's first bytes, a host, probe rules; routes from arbitrary objects;
//! the frames of an HTTP/2 connection.
#![expect(clippy::panic, reason = "a broken promise is what a fuzzer looks for")]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::ProbeResponse;
use elasti_core::backends::{AddressPolicy, check_address};
use elasti_core::probe_response::{ProbeRequest, ProbeRules};
use elasti_core::waiting_room::Limits;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;
use serde_json::Value;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use crate::clock::Clock;
use crate::elasti_service::ElastiServiceView;
use crate::follow::{Change, Kept};
use crate::forward::http2_pool::STREAM_WINDOW;
use crate::hold::Hold;
use crate::host_route::{self, HostRoute};
use crate::http_connection::http2_server;
use crate::metrics::Metrics;
use crate::protocol;
use crate::routes::{BackendFilter, Routes, ServiceDefaults};
use crate::slice::NamedSlice;
use crate::starting_pods::{SeenPod, StartingPods};
use crate::table::{RouteTable, Table};

/// The first line may be probe rules in JSON; what follows is a head: its first bytes, and each of its tokens as host and path.
pub fn head(input: &[u8]) {
    let split = input.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (rules, bytes) = input.split_at_checked(split).unwrap_or_default();
    let mut decided = None;
    for length in 1..=bytes.len().min(24) {
        let now = protocol::sniff(bytes.get(..length).unwrap_or_default());
        if decided.is_some() && now != decided {
            panic!("{decided:?} became {now:?} with one byte more");
        }
        decided = now;
    }
    let text = String::from_utf8_lossy(bytes);
    for token in text.split_ascii_whitespace() {
        if let Some((key, _)) = host_route::parse(token, "cluster.local") {
            let label = |name: &str| !name.is_empty() && !name.contains(['.', ':', '/', '@']);
            if !label(&key.service) || !label(&key.namespace) {
                panic!("{token:?} names {key}");
            }
        }
    }
    let rules: Vec<ProbeResponse> = serde_json::from_slice(rules).unwrap_or_default();
    let (rules, _) = ProbeRules::compile(&rules);
    let mut tokens = text.split(' ');
    let (method, target) = (tokens.next().unwrap_or(""), tokens.next().unwrap_or(""));
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    let headers: Vec<(&str, &[u8])> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name, value.as_bytes()))
        .collect();
    let _ = rules.answer(&ProbeRequest {
        method,
        path,
        query,
        headers: &headers,
    });
}

/// Every line is an object in JSON, as the API could show it; a line that starts with `-` takes one away.
pub fn routes(input: &[u8]) {
    let table = RouteTable::default();
    let limits = Limits::default();
    let hold = Hold::new(&limits, Clock::start(), table.clone());
    let filter = BackendFilter {
        resolvers: BTreeSet::from([IpAddr::from([10, 0, 0, 1])]),
        policy: AddressPolicy::default(),
    };
    let routes = Routes::new(
        table.clone(),
        hold,
        ServiceDefaults {
            limits,
            allow_from: None,
        },
        filter.clone(),
        Arc::new(Metrics::new(&HostRoute::default())),
        Clock::start(),
    );
    let mut starting = StartingPods::default();
    for line in input.split(|byte| *byte == b'\n') {
        let (deleted, json) = line
            .strip_prefix(b"-")
            .map_or((false, line), |rest| (true, rest));
        let Ok(value) = serde_json::from_slice::<Value>(json) else {
            continue;
        };
        let kind = value
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        match kind.as_str() {
            "ElastiService" => apply(value, deleted, |change: Change<ElastiServiceView>| {
                routes.apply_elasti_services(None, change)
            }),
            "EndpointSlice" => apply(value, deleted, |change: Change<NamedSlice>| {
                routes.apply_slices(None, change)
            }),
            "Service" => {
                starting = serde_json::from_value::<Service>(value)
                    .map(|one| StartingPods::new(&one))
                    .unwrap_or_default()
            }
            "Pod" => {
                let Ok(pod) = serde_json::from_value::<Pod>(value) else {
                    continue;
                };
                let seen = SeenPod::from_object(pod.clone());
                starting.apply(if deleted {
                    Change::Deleted(seen)
                } else {
                    Change::Set(seen)
                });
                let services = table.services();
                let keys: Vec<_> = { services.iter() }
                    .map(|service| service.key.clone())
                    .collect();
                for key in keys
                    .iter()
                    .filter(|key| pod.namespace().as_deref() == Some(&key.namespace))
                {
                    routes.set_starting_pods(key, (!deleted).then(|| starting.clone()));
                }
            }
            _ => {}
        }
        table.inspect(|table| check(table, &filter));
    }
}

fn apply<K: Kept>(value: Value, deleted: bool, route: impl Fn(Change<K>)) {
    if let Ok(object) = serde_json::from_value(value) {
        let kept = K::from_object(object);
        route(if deleted {
            Change::Deleted(kept)
        } else {
            Change::Set(kept)
        });
    }
}

/// What a client sends after the preface of HTTP/2, whatever it is: its connection ends, after steps in proportion to it.
/// The clock is paused, so time passes only where nothing else can happen.
pub fn http2(input: &[u8]) {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let Ok(runtime) = builder.enable_time().start_paused(true).build() else {
        panic!("no runtime");
    };
    let (client, server) = tokio::io::duplex(STREAM_WINDOW as usize);
    let (mut reader, mut writer) = tokio::io::split(client);
    let write = async {
        // A server that ends the connection early is right.
        let _ = writer.write_all(protocol::PREFACE).await;
        let _ = writer.write_all(input).await;
        let _ = writer.shutdown().await;
    };
    let read = async { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await };
    let talk = async { tokio::join!(serve_echo(server, input.len()), write, read) };
    runtime.block_on(async {
        if tokio::time::timeout(HTTP2_END, talk).await.is_err() {
            panic!("the connection does not end");
        }
    });
}

/// Far beyond every time-out of a connection.
const HTTP2_END: Duration = Duration::from_secs(3600);

/// Serves one connection; each request gets its own body back.
async fn serve_echo(stream: DuplexStream, input_bytes: usize) {
    let echo =
        async |request: Request<Incoming>| Ok::<_, Infallible>(Response::new(request.into_body()));
    let served = http2_server().serve_connection(TokioIo::new(stream), service_fn(echo));
    let mut served = pin!(served);
    let (mut steps, most) = (0, 1000 + 10 * input_bytes);
    let ended = poll_fn(|context| {
        steps += 1;
        if steps > most {
            panic!("more than {most} steps for {input_bytes} bytes");
        }
        served.as_mut().poll(context)
    });
    // With an error as well.
    drop(ended.await);
}

/// Every listen port routes to a service that has it, and every pod may be one (S8).
fn check(table: &Table, filter: &BackendFilter) {
    for (port, key) in &table.listen_ports {
        if table
            .services
            .get(key)
            .is_none_or(|service| service.port(*port).is_none())
        {
            panic!("port {port} routes to {key}, which does not have it");
        }
    }
    let ports = table.services.values().flat_map(|service| &service.ports);
    for pod in ports.flat_map(|port| &port.pods) {
        let address = pod.backend.address;
        if check_address(address.ip(), &filter.resolvers, filter.policy) != Ok(address.ip())
            || address.port() == 0
        {
            panic!("{address} is a backend");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_seed_of_every_fuzz_target_passes() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let targets = [
            ("head", head as fn(&[u8])),
            ("routes", routes),
            ("http2", http2),
        ];
        for (target, run) in targets {
            for seed in std::fs::read_dir(seeds.join(target)).unwrap() {
                run(&std::fs::read(seed.unwrap().path()).unwrap());
            }
        }
    }
}
