//! Reports of the resolvers: one that does not answer blocks sleep, and asking costs little.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::scripted_server::{Reply, ScriptedServer, answer, small_steps, until};
use elasti_api::{Activity, ActivityReport, ListenPort, RouteGeneration, names};
use elasti_core::observed::Report;
use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
use elasti_operator::activity::{Reports, ResolverAddress};
use elasti_operator::clock::Clock;
use elasti_resolver::{Running, Settings};
use jiff::SignedDuration;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use tempfile::NamedTempFile;
use tokio::time::{Instant, sleep};

fn route() -> RouteGeneration {
    RouteGeneration::from_ports(&[ListenPort {
        name: "http".into(),
        port: 80,
        listen_port: 20_001,
    }])
}

fn seen(service: &str, held: u32, millis_ago: Option<u64>) -> Activity {
    Activity {
        namespace: "shop".into(),
        service: service.into(),
        route_generation: route(),
        held,
        open: 2,
        last_connection_millis_ago: millis_ago,
        first_answer_millis_ago: millis_ago.map(|millis| millis / 2),
    }
}

fn report_body(services: Vec<Activity>) -> Vec<u8> {
    let report = serde_json::to_vec(&ActivityReport { services }).unwrap();
    answer(200, "", report)
}

fn at(name: &str, address: SocketAddr) -> ResolverAddress {
    ResolverAddress {
        name: name.into(),
        ip: address.ip(),
    }
}

fn reports(port: u16) -> Reports {
    Reports::new(port, None, None, Clock::start()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_report_is_as_old_as_its_question_and_a_connection_as_young_as_its_answer() {
    let body = report_body(vec![seen("cart", 3, Some(1500)), seen("other", 0, None)]);
    let slow = Duration::from_millis(300);
    let resolver = ScriptedServer::start(move |_| Reply::After(slow, body.clone())).await;
    let clock = Clock::start();
    let reports = Reports::new(resolver.address.port(), None, None, clock).unwrap();
    let before = clock.now();
    let answers = reports
        .ask(&[at("r1", resolver.address)], "shop", "cart", &[])
        .await;
    let after = clock.now();
    let Report::Seen {
        at,
        route: reported,
        other_routes: _,
        held,
        open,
        last_connection,
        first_answer,
    } = answers["r1"].clone()
    else {
        panic!("{answers:?}");
    };
    assert_eq!((reported, held, open), (Some(route()), 3, 2));
    let slow = SignedDuration::try_from(slow).unwrap();
    assert!(before <= at && at + slow <= after, "{before} {at} {after}");
    let last = last_connection.unwrap();
    let ago = SignedDuration::from_millis(1500);
    assert!(last >= at + slow - ago && last <= after - ago, "{last}");
    assert_eq!(first_answer.unwrap().duration_since(last), ago / 2);
    assert_eq!(resolver.received()[0].path, names::ACTIVITY_PATH);
}

#[tokio::test(start_paused = true)]
async fn the_other_services_of_the_pods_are_told_together_with_the_named_one() {
    let body = report_body(vec![
        seen("cart", 3, Some(1500)),
        seen("admin", 2, Some(500)),
    ]);
    let resolver = ScriptedServer::start(move |_| Reply::Bytes(body.clone())).await;
    let clock = Clock::start();
    let reports = Reports::new(resolver.address.port(), None, None, clock).unwrap();
    let answers = reports
        .ask(
            &[at("r1", resolver.address)],
            "shop",
            "cart",
            &["admin", "new"],
        )
        .await;
    let Report::Seen {
        other_routes,
        held,
        open,
        last_connection,
        ..
    } = answers["r1"].clone()
    else {
        panic!("{answers:?}");
    };
    assert_eq!((held, open), (5, 4));
    let ago = clock.now().duration_since(last_connection.unwrap());
    assert!(ago < SignedDuration::from_millis(1500), "{ago}");
    let known: Vec<&String> = other_routes.keys().collect();
    assert_eq!(known, ["admin"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_a_resolver_does_not_know_has_no_route_there() {
    let resolver =
        ScriptedServer::start(|_| Reply::Bytes(report_body(vec![seen("cart", 1, None)]))).await;
    let reports = reports(resolver.address.port());
    for (namespace, service) in [("shop", "unknown"), ("other", "cart")] {
        let answers = reports
            .ask(&[at("r1", resolver.address)], namespace, service, &[])
            .await;
        let Report::Seen { route, held, .. } = &answers["r1"] else {
            panic!("{answers:?}");
        };
        assert_eq!((route, *held), (&None, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn all_services_that_ask_in_one_moment_share_one_question_and_one_connection() {
    let resolver =
        ScriptedServer::start(|_| Reply::Keep(report_body(vec![seen("cart", 0, None)]))).await;
    let reports = reports(resolver.address.port());
    let resolvers = [at("r1", resolver.address)];
    let ask = || reports.ask(&resolvers, "shop", "cart", &[]);
    let together = futures::future::join_all((0..1000).map(|_| ask())).await;
    assert!(
        together
            .iter()
            .all(|answers| matches!(answers["r1"], Report::Seen { .. }))
    );
    assert_eq!(resolver.received().len(), 1);
    sleep(Duration::from_millis(300)).await;
    ask().await;
    assert_eq!(resolver.received().len(), 2, "an old answer is not shared");
    assert_eq!(resolver.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn whatever_a_resolver_does_instead_of_telling_it_counts_as_unreachable() {
    let mut short = report_body(vec![seen("cart", 0, None)]);
    short.truncate(short.len() - 9);
    let large = answer(200, "", vec![b' '; (8 << 20) + 1]);
    for (name, play) in [
        ("silence", Reply::Hang(vec![])),
        ("half an answer", Reply::Hang(short.clone())),
        ("a cut answer", Reply::Bytes(short)),
        ("closed", Reply::Bytes(vec![])),
        (
            "401",
            Reply::Bytes(answer(401, "", "show the operator's token")),
        ),
        ("503", Reply::Bytes(answer(503, "", r#"{"services":[]}"#))),
        (
            "a redirect",
            Reply::Bytes(answer(302, "location: /x\r\n", r#"{"services":[]}"#)),
        ),
        ("no report", Reply::Bytes(answer(200, "", "{}"))),
        ("too much", Reply::Bytes(large)),
    ] {
        let resolver = ScriptedServer::start(move |_| play.clone()).await;
        let reports = reports(resolver.address.port());
        let answers = reports
            .ask(&[at("r1", resolver.address)], "shop", "cart", &[])
            .await;
        assert_eq!(answers["r1"], Report::Unreachable, "{name}");
    }
    let closed: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let answers = reports(1)
        .ask(&[at("r1", closed)], "shop", "cart", &[])
        .await;
    assert_eq!(answers["r1"], Report::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn a_silent_resolver_delays_a_service_by_two_requests_at_most() {
    let silent = ScriptedServer::start(|_| Reply::Hang(vec![])).await;
    let reports = reports(silent.address.port());
    let resolvers = [at("r1", silent.address)];
    let started = Instant::now();
    // All come within the first question's second.
    let asks = (0..200).map(async |at| {
        sleep(Duration::from_millis(at * 4)).await;
        reports.ask(&resolvers, "shop", "cart", &[]).await
    });
    let answers = futures::future::join_all(asks).await;
    assert!(
        answers
            .iter()
            .all(|answers| answers["r1"] == Report::Unreachable)
    );
    assert_eq!(silent.received().len(), 2);
    assert!(
        started.elapsed() < Duration::from_millis(2500),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_services_with_long_names_fit_into_one_report() {
    let ports: Vec<ListenPort> = (0..15)
        .map(|port| ListenPort {
            name: format!("port-name-{port:05}"),
            port: 10_000 + port,
            listen_port: 20_000 + port,
        })
        .collect();
    let services = (0..10_000)
        .map(|at| Activity {
            namespace: "n".repeat(63),
            service: format!("{at:063}"),
            route_generation: RouteGeneration::from_ports(&ports),
            held: u32::MAX,
            open: u32::MAX,
            last_connection_millis_ago: Some(100_000_000),
            first_answer_millis_ago: Some(100_000_000),
        })
        .collect();
    let body = report_body(services);
    println!("10,000 services are {} bytes", body.len());
    let resolver = ScriptedServer::start(move |_| Reply::Bytes(body.clone())).await;
    let reports = reports(resolver.address.port());
    let last = format!("{:063}", 9_999);
    let answers = reports
        .ask(&[at("r1", resolver.address)], &"n".repeat(63), &last, &[])
        .await;
    let Report::Seen { held, .. } = &answers["r1"] else {
        panic!("{answers:?}");
    };
    assert_eq!(*held, u32::MAX);
}

async fn token_file(server: &ApiServer, audience: &str) -> NamedTempFile {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client());
    let mut object = ServiceAccount::default();
    object.metadata.name = Some("operator".into());
    let params = PostParams::default();
    // It may be there already.
    let _ = accounts.create(&params, &object).await;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![audience.to_owned()],
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request("operator", &params, &request)
        .await
        .unwrap();
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "{}", made.status.unwrap().token).unwrap();
    file
}

/// An address that no other test has.
fn own_address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 254, std::process::id().to_le_bytes()[0], last)
}

#[tokio::test(start_paused = true)]
async fn a_real_resolver_answers_the_operator_only() {
    let server = ApiServer::new(ApiServerConfig::default());
    let definition =
        serde_json::to_value(<elasti_api::ElastiService as kube::CustomResourceExt>::crd());
    let definitions: Api<kube::api::DynamicObject> = Api::all_with(
        server.client(),
        &kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let definition = serde_json::from_value(definition.unwrap()).unwrap();
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let address = own_address(1);
    let settings = Settings {
        bind: IpAddr::V4(address),
        admin: SocketAddr::from((address, 8013)),
        health: SocketAddr::from((address, 8011)),
        proxy: Some(SocketAddr::from((address, 8012))),
        activity_readers: ["system:serviceaccount:default:operator".to_owned()].into(),
        ..Settings::default()
    };
    let resolver = Running::start(settings, server.client()).unwrap();
    let _steps = tokio::spawn(small_steps());
    until("the resolver is ready", async || resolver.is_ready()).await;
    let resolvers = [ResolverAddress {
        name: "r1".into(),
        ip: IpAddr::V4(address),
    }];
    let good = token_file(&server, names::ACTIVITY_AUDIENCE).await;
    let bad = token_file(&server, "vault").await;
    for (file, may) in [(Some(&good), true), (Some(&bad), false), (None, false)] {
        let path = file.map(|file| file.path().to_owned());
        let reports = Reports::new(8013, path, None, Clock::start()).unwrap();
        let answers = reports.ask(&resolvers, "shop", "cart", &[]).await;
        let saw = matches!(
            answers["r1"],
            Report::Seen {
                route: None,
                held: 0,
                open: 0,
                ..
            }
        );
        assert_eq!(saw, may, "{answers:?}");
        assert_eq!(answers["r1"] == Report::Unreachable, !may, "{answers:?}");
    }
    let gone = Reports::new(8013, Some("/nowhere".into()), None, Clock::start()).unwrap();
    let answers = gone.ask(&resolvers, "shop", "cart", &[]).await;
    assert_eq!(answers["r1"], Report::Unreachable);
}
