//! Which pods may be probed and by what, and what results mean.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use serde_json::{Value, json};

use super::*;

const STARTED: &str = "2026-01-01T00:00:00Z";

/// A pod with one container that runs and is not ready, and an `httpGet` probe.
fn object() -> Value {
    json!({
        "metadata": {"name": "web-1", "uid": "1"},
        "spec": {"containers": [{
            "name": "app", "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"port": "http", "path": "/healthz?full=1"}},
        }]},
        "status": {
            "phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [running("app", false)],
        },
    })
}

fn running(name: &str, ready: bool) -> Value {
    json!({"name": name, "image": "x", "imageID": "", "ready": ready, "restartCount": 0, "started": true,
        "state": {"running": {"startedAt": STARTED}}})
}

fn read(object: Value) -> Option<Candidate> {
    candidate(&serde_json::from_value(object).unwrap())
}

fn with(change: impl FnOnce(&mut Value)) -> Option<Candidate> {
    let mut object = object();
    change(&mut object);
    read(object)
}

fn readiness(probe: Value) -> Option<Probe> {
    let candidate = with(|pod| pod["spec"]["containers"][0]["readinessProbe"] = probe)?;
    candidate.containers[0].readiness.clone()
}

#[test]
fn the_probe_is_read_as_a_kubelet_reads_it() {
    let plain = Probe {
        call: Call::Http {
            target: HttpTarget {
                tls: false,
                port: 8080,
                path: "/healthz?full=1".into(),
            },
            headers: vec![],
        },
        timeout: Duration::from_secs(1),
        delay: Duration::ZERO,
        period: Duration::from_secs(10),
        successes: 1,
        failures: 3,
    };
    assert_eq!(read(object()).unwrap().containers[0].readiness, Some(plain));
    let full = json!({
        "httpGet": {"port": 8443, "scheme": "HTTPS", "httpHeaders": [{"name": "Host", "value": "shop"}]},
        "timeoutSeconds": 4, "initialDelaySeconds": 7, "periodSeconds": 2, "successThreshold": 2, "failureThreshold": 5,
    });
    let expected = Probe {
        call: Call::Http {
            target: HttpTarget {
                tls: true,
                port: 8443,
                path: "/".into(),
            },
            headers: vec![("Host".into(), "shop".into())],
        },
        timeout: Duration::from_secs(4),
        delay: Duration::from_secs(7),
        period: Duration::from_secs(2),
        successes: 2,
        failures: 5,
    };
    assert_eq!(readiness(full), Some(expected));
    let call = |probe: Value| readiness(probe).map(|probe| probe.call);
    let relative = call(json!({"httpGet": {"port": 8080, "path": "healthz"}}));
    assert!(
        matches!(relative, Some(Call::Http { target, .. }) if target.path == "/healthz"),
        "a kubelet adds the slash"
    );
    for port in [json!("http"), json!(8080), json!("8080")] {
        let tcp = json!({"tcpSocket": {"port": port}});
        assert_eq!(call(tcp), Some(Call::Tcp { port: 8080 }));
    }
    let grpc = Call::Grpc {
        port: 9090,
        service: "shop.Cart".into(),
    };
    let written = json!({"grpc": {"port": 9090, "service": "shop.Cart"}});
    assert_eq!(call(written), Some(grpc));
}

#[test]
fn what_cannot_be_asked_here_waits_for_the_kubelet() {
    for probe in [
        json!({"exec": {"command": ["true"]}}),
        json!({"httpGet": {"port": 8080, "host": "10.0.0.9"}}),
        json!({"tcpSocket": {"port": 8080, "host": "metadata"}}),
        json!({"httpGet": {"port": "another"}}),
        json!({"tcpSocket": {"port": 0}}),
        json!({}),
        Value::Null,
    ] {
        assert_eq!(readiness(probe.clone()), None, "{probe}");
    }
    // A `host` that is empty names none.
    assert!(readiness(json!({"httpGet": {"port": 8080, "host": ""}})).is_some());
}

/// What each pod has that must not be probed: the places in the object, and what is there.
fn excluded() -> Vec<(&'static str, Vec<(&'static str, Value)>)> {
    let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason});
    let mark = condition("Ready", "False", elasti_api::names::DRAIN_REASON);
    let gates = || ("/spec/readinessGates", json!([{"conditionType": "lb"}]));
    let closed = json!([
        condition("Ready", "False", ""),
        condition("lb", "False", "")
    ]);
    let exec = || json!({"exec": {"command": ["true"]}});
    let sidecar = json!([{"name": "mesh", "restartPolicy": "Always", "readinessProbe": exec()}]);
    let creating = json!({"waiting": {"reason": "ContainerCreating"}});
    vec![
        (
            "ready",
            vec![("/status/conditions/0/status", json!("True"))],
        ),
        ("marked", vec![("/status/conditions/0", mark)]),
        (
            "terminating",
            vec![("/metadata/deletionTimestamp", json!(STARTED))],
        ),
        ("ended", vec![("/status/phase", json!("Failed"))]),
        ("without an address", vec![("/status/podIP", Value::Null)]),
        ("a gate that was never set", vec![gates()]),
        (
            "a gate that is closed",
            vec![gates(), ("/status/conditions", closed)],
        ),
        (
            "a container that waits",
            vec![("/status/containerStatuses/0/state", creating)],
        ),
        (
            "a container without a status",
            vec![("/status/containerStatuses", json!([]))],
        ),
        (
            "a startup probe that only the kubelet can run",
            vec![
                ("/spec/containers/0/startupProbe", exec()),
                ("/status/containerStatuses/0/started", json!(false)),
            ],
        ),
        (
            "a sidecar that only the kubelet can ask",
            vec![
                ("/spec/initContainers", sidecar),
                (
                    "/status/initContainerStatuses",
                    json!([running("mesh", false)]),
                ),
            ],
        ),
    ]
}

#[test]
fn only_a_pod_that_may_become_ready_by_its_probes_alone_is_probed() {
    assert!(read(object()).is_some());
    for (what, changes) in excluded() {
        let mut pod = object();
        for (place, value) in changes {
            let (parent, key) = place.rsplit_once('/').unwrap();
            match pod.pointer_mut(parent).unwrap() {
                Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
                object => object[key] = value,
            }
        }
        assert_eq!(read(pod), None, "{what}");
    }
}

#[test]
fn the_kubelets_word_counts_for_what_cannot_be_asked_here() {
    let second = |ready: bool| {
        with(|pod| {
            let containers = pod["spec"]["containers"].as_array_mut().unwrap();
            containers.push(json!({"name": "second"}));
            let statuses = pod["status"]["containerStatuses"].as_array_mut().unwrap();
            statuses.push(running("second", ready));
        })
    };
    assert_eq!(second(false), None);
    let probes = second(true).unwrap().containers;
    assert!(probes[0].readiness.is_some() && probes[1].readiness.is_none());
}

#[test]
fn another_run_of_a_container_is_another_candidate() {
    let first = read(object());
    assert_eq!(first, read(object()));
    let restarted = with(|pod| pod["status"]["containerStatuses"][0]["restartCount"] = json!(1));
    assert_ne!(first.unwrap().run, restarted.unwrap().run);
    // The kubelet saw the startup probe pass: the same run.
    let startup = |started: bool| {
        let candidate = with(|pod| {
            pod["spec"]["containers"][0]["startupProbe"] = json!({"tcpSocket": {"port": 1}});
            pod["status"]["containerStatuses"][0]["started"] = json!(started);
        });
        candidate.unwrap()
    };
    assert_ne!(startup(false).containers, startup(true).containers);
    assert_eq!(startup(false).run, startup(true).run);
}

/// Records results of the one probe, and says after each whether the pod has passed.
fn passes(candidate: &Candidate, results: &[bool]) -> Vec<bool> {
    let mut progress = Progress::new(candidate);
    let each = results.iter().map(|result| {
        progress.record(0, *result);
        progress.passed()
    });
    each.collect()
}

#[test]
fn thresholds_count_in_a_row() {
    let probe = |successes: u32, failures: u32| {
        let probe = json!({"tcpSocket": {"port": 1}, "successThreshold": successes, "failureThreshold": failures});
        with(|pod| pod["spec"]["containers"][0]["readinessProbe"] = probe).unwrap()
    };
    assert_eq!(passes(&probe(1, 3), &[false, true]), [false, true]);
    let twice = passes(&probe(2, 3), &[true, false, true, true]);
    assert_eq!(twice, [false, false, false, true]);
    let lost = passes(&probe(1, 2), &[true, false, true, false, false, true]);
    assert_eq!(lost, [true, true, true, true, false, true]);
}

#[test]
fn a_startup_probe_passes_before_the_readiness_probe_is_asked() {
    let candidate = with(|pod| {
        pod["spec"]["containers"][0]["startupProbe"] = json!({"tcpSocket": {"port": 1}});
        pod["status"]["containerStatuses"][0]["started"] = json!(false);
    });
    let mut progress = Progress::new(&candidate.unwrap());
    let now = Duration::from_secs(1);
    let asked = |progress: &Progress| progress.due(now)[0].1.call.clone();
    assert_eq!(asked(&progress), Call::Tcp { port: 1 });
    progress.record(0, true);
    assert!(!progress.passed());
    assert!(matches!(asked(&progress), Call::Http { .. }));
    progress.record(0, true);
    assert!(progress.passed());
}

#[test]
fn every_container_must_pass_and_none_before_its_initial_delay() {
    let candidate = with(|pod| {
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        let late = json!({"tcpSocket": {"port": 2}, "initialDelaySeconds": 5});
        containers.push(json!({"name": "second", "readinessProbe": late}));
        let statuses = pod["status"]["containerStatuses"].as_array_mut().unwrap();
        statuses.push(running("second", false));
    });
    let mut progress = Progress::new(&candidate.unwrap());
    let due = |progress: &Progress, millis: u64| {
        let due = progress.due(Duration::from_millis(millis));
        due.into_iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(due(&progress, 4999), [0]);
    progress.record(0, true);
    assert!(!progress.passed());
    assert_eq!(due(&progress, 5000), [0, 1]);
    progress.record(1, true);
    assert!(progress.passed());
}

#[test]
fn probes_come_every_25_ms_at_first_and_are_at_most_5_percent_late() {
    let progress = Progress::new(&read(object()).unwrap());
    for (seen, wait) in [
        (0, 25),
        (500, 25),
        (3000, 150),
        (10_000, 500),
        (60_000, 1000),
    ] {
        let waits = progress.wait(Duration::from_millis(seen));
        assert_eq!(waits, Duration::from_millis(wait), "{seen}");
    }
    let (mut at, mut probes) = (Duration::ZERO, 0);
    while at < Duration::from_secs(30) {
        at += progress.wait(at);
        probes += 1;
    }
    assert!(probes <= 110, "{probes}");
}

#[test]
fn a_pod_that_has_passed_or_must_pass_again_is_asked_at_its_own_period() {
    let mut passed = Progress::new(&read(object()).unwrap());
    passed.record(0, true);
    assert_eq!(passed.wait(Duration::ZERO), Duration::from_secs(10));
    let rarely =
        with(|pod| pod["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] = json!(300));
    let mut rarely = Progress::new(&rarely.unwrap());
    rarely.record(0, true);
    assert_eq!(rarely.wait(Duration::ZERO), Duration::from_secs(10));
    let twice =
        with(|pod| pod["spec"]["containers"][0]["readinessProbe"]["successThreshold"] = json!(2));
    let mut proving = Progress::new(&twice.unwrap());
    proving.record(0, true);
    assert_eq!(proving.wait(Duration::ZERO), Duration::from_secs(10));
    proving.record(0, false);
    assert_eq!(proving.wait(Duration::ZERO), Duration::from_millis(25));
}

#[test]
fn a_namespace_has_a_hundred_probes_a_second_of_its_own() {
    let mut slots = Slots::default();
    let now = Duration::from_secs(1);
    let waits: Vec<u128> = (0..101).map(|_| slots.take("a", now).as_millis()).collect();
    assert_eq!((waits[0], waits[1], waits[100]), (0, 10, 1000));
    assert_eq!(slots.take("b", now), Duration::ZERO);
    assert_eq!(
        slots.take("a", now + Duration::from_secs(2)),
        Duration::ZERO
    );
}

#[test]
fn in_one_queue_of_probes_a_neighbours_pod_is_asked_after_all_others() {
    let mut slots = Slots::default();
    let now = Duration::from_secs(1);
    for _ in 0..500 {
        slots.take("hostile", now);
    }
    assert_eq!(slots.take("shop", now), Duration::ZERO);
    assert_eq!(slots.take("hostile", now), Duration::from_secs(5));
}
