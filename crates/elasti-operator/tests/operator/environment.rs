//! Flags and environment variables: the names of the contract work, mistakes are named, the page matches the code.
//! The process environment is not touched: values are passed in.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use elasti_operator::environment::{Flags, IGNORED, VARIABLES};
use elasti_operator::settings::Settings;
use elasti_runtime::environment::WrongValues;
use jiff::SignedDuration;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

fn flags(given: &[&str]) -> Flags {
    let words = std::iter::once("operator").chain(given.iter().copied());
    Cli::try_parse_from(words).unwrap().flags
}

fn parse(given: &[&str], pairs: &[(&str, &str)]) -> Result<Settings, WrongValues> {
    Settings::from_environment(&flags(given), |name| {
        let found = pairs.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn the_contracts_flags_and_variables_are_read() {
    let settings = parse(
        &[
            "--watch-namespace=a",
            "--metrics-bind-address=127.0.0.1:9090",
            "--health-probe-bind-address",
            ":9091",
            "--leader-elect",
            "--metrics-secure=false",
            "--enable-http2=true",
            "--zap-devel=false",
            "--zap-encoder=json",
            "--zap-log-level",
            "debug",
            "--zap-stacktrace-level=error",
            "--zap-time-encoding=iso8601",
            "--allow-anonymous-wakes",
        ],
        &[
            ("ELASTI_OPERATOR_NAMESPACE", "ops"),
            ("ELASTI_OPERATOR_PORT", "9013"),
            ("ELASTI_OPERATOR_BIND_ADDRESS", "10.0.0.7"),
            ("ELASTI_OPERATOR_TOKEN_FILE", "/t"),
            ("ELASTI_OPERATOR_LISTEN_PORTS", "15000-15999"),
            ("ELASTI_OPERATOR_SETTLE", "1500ms"),
            ("ELASTI_OPERATOR_ALLOW_LOOPBACK", "true"),
            ("ELASTI_RESOLVER_NAMESPACE", "edge"),
            ("ELASTI_RESOLVER_PORT", "9014"),
            ("POLLING_INTERVAL", "1m30s"),
            ("WATCH_NAMESPACES", "b, a,"),
            (
                "PROMETHEUS_TRIGGER_SERVER_ADDRESS",
                "http://prometheus:9090",
            ),
            ("PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER", "Bearer x"),
            (
                "PROMETHEUS_TRIGGER_ALLOWED_SERVERS",
                "http://a:9090, https://b/p",
            ),
            ("PROMETHEUS_TRIGGER_SHOW_VALUES", "true"),
        ],
    )
    .unwrap();
    let allowed = ["http://a:9090", "https://b/p"];
    assert_eq!(settings.allowed_prometheus_servers, allowed);
    assert!(settings.show_trigger_values);
    assert_eq!(settings.wake.to_string(), "10.0.0.7:9013");
    assert_eq!(settings.metrics.unwrap().to_string(), "127.0.0.1:9090");
    assert_eq!(settings.health.unwrap().to_string(), "10.0.0.7:9091");
    assert!(settings.leader_elect && settings.allow_anonymous_wakes && settings.allow_loopback);
    assert_eq!(settings.operator_namespace, "ops");
    assert_eq!(settings.resolver_namespace, "edge");
    assert_eq!(settings.resolver_port, 9014);
    assert_eq!(
        settings.wake_callers,
        ["system:serviceaccount:edge:elasti-resolver"]
    );
    assert_eq!(settings.token_file.unwrap().to_str(), Some("/t"));
    assert_eq!(settings.ports, 15_000..=15_999);
    assert_eq!(settings.times.settle, SignedDuration::from_millis(1500));
    assert_eq!(settings.polling_interval, Duration::from_secs(90));
    assert_eq!(settings.namespaces, ["a", "b"]);
    assert_eq!(
        settings.prometheus_address.as_deref(),
        Some("http://prometheus:9090")
    );
    assert_eq!(
        settings.prometheus_authorization.as_deref(),
        Some("Bearer x")
    );
}

#[test]
fn what_is_left_out_or_empty_has_its_default() {
    let settings = parse(
        &[],
        &[("POLLING_INTERVAL", ""), ("ELASTI_OPERATOR_PORT", " ")],
    )
    .unwrap();
    let Settings {
        wake,
        metrics,
        health,
        namespaces,
        operator_namespace,
        leader_elect,
        resolver_port,
        polling_interval,
        prometheus_address,
        wake_callers,
        allow_anonymous_wakes,
        allow_loopback,
        ..
    } = settings;
    assert_eq!(wake.to_string(), "[::]:8013");
    assert_eq!(metrics.unwrap().to_string(), "[::]:8080");
    assert_eq!(health.unwrap().to_string(), "[::]:8081");
    assert!(namespaces.is_empty() && prometheus_address.is_none());
    assert!(!leader_elect && !allow_anonymous_wakes && !allow_loopback);
    assert_eq!(operator_namespace, "elasti");
    assert_eq!(
        (resolver_port, polling_interval),
        (8013, Duration::from_secs(30))
    );
    assert_eq!(
        wake_callers,
        ["system:serviceaccount:elasti:elasti-resolver"]
    );
    let off = parse(
        &["--metrics-bind-address=0", "--health-probe-bind-address=0"],
        &[],
    )
    .unwrap();
    assert!(off.metrics.is_none() && off.health.is_none());
}

#[test]
fn every_wrong_value_is_named_in_one_line_and_no_secret_is_shown() {
    let wrong = parse(
        &[
            "--metrics-bind-address=:x",
            "--health-probe-bind-address=here",
        ],
        &[
            ("ELASTI_OPERATOR_PORT", "0"),
            ("ELASTI_OPERATOR_BIND_ADDRESS", "host"),
            ("ELASTI_OPERATOR_LISTEN_PORTS", "9-1"),
            ("ELASTI_OPERATOR_SETTLE", "2"),
            ("ELASTI_OPERATOR_ALLOW_LOOPBACK", "yes"),
            ("ELASTI_RESOLVER_PORT", "70000"),
            ("POLLING_INTERVAL", "-30s"),
            (
                "PROMETHEUS_TRIGGER_SERVER_ADDRESS",
                "user:secret@prometheus",
            ),
            ("PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER", "Bearer se\ncret"),
            ("PROMETHEUS_TRIGGER_ALLOWED_SERVERS", "http://a, secret"),
        ],
    )
    .unwrap_err();
    let line = wrong.to_string();
    assert_eq!(wrong.0.len(), 12, "{line}");
    assert!(
        !line.contains('\n') && !line.contains("secret") && !line.contains("cret"),
        "{line}"
    );
    for part in [
        "--metrics-bind-address=\":x\" cannot be used: an address such as :8080 or 127.0.0.1:8080, or 0 is needed",
        "--health-probe-bind-address=\"here\"",
        "ELASTI_OPERATOR_PORT=\"0\" cannot be used: a port number is needed",
        "ELASTI_OPERATOR_BIND_ADDRESS=\"host\"",
        "ELASTI_OPERATOR_LISTEN_PORTS=\"9-1\"",
        "ELASTI_OPERATOR_SETTLE=\"2\"",
        "ELASTI_OPERATOR_ALLOW_LOOPBACK=\"yes\"",
        "ELASTI_RESOLVER_PORT=\"70000\"",
        "POLLING_INTERVAL=\"-30s\"",
        "PROMETHEUS_TRIGGER_SERVER_ADDRESS=(hidden)",
        "PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER=(hidden)",
        "PROMETHEUS_TRIGGER_ALLOWED_SERVERS=(hidden)",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

fn read_by_operator() -> BTreeSet<String> {
    let names = RefCell::new(BTreeSet::new());
    let _ = Settings::from_environment(&flags(&[]), |name| {
        names.borrow_mut().insert(name.to_owned());
        None
    });
    names.into_inner()
}

fn read_by_resolver() -> BTreeSet<String> {
    let names = RefCell::new(BTreeSet::new());
    let _ = elasti_resolver::Settings::from_environment(|name| {
        names.borrow_mut().insert(name.to_owned());
        None
    });
    names.into_inner()
}

#[test]
fn every_variable_that_is_read_is_in_the_table_and_no_other() {
    let listed = VARIABLES.iter().map(|one| one.name).chain(IGNORED);
    assert_eq!(read_by_operator(), listed.map(str::to_owned).collect());
}

const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// The names in the first column of the tables of one part of the page.
fn on_the_page(part: &str) -> BTreeSet<String> {
    let text = PAGE.split("\n## ").find(|text| text.starts_with(part));
    let text = text.unwrap_or_else(|| panic!("no part {part}"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split_once('`'));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_page_names_every_flag_and_variable_that_the_code_reads() {
    let command = Cli::command();
    let longs = command
        .get_arguments()
        .filter_map(|argument| argument.get_long());
    let flags = longs
        .filter(|long| *long != "help")
        .map(|long| format!("--{long}"));
    // Read by the logs and by the TLS library.
    let others = ["RUST_LOG", "SSL_CERT_FILE", "KUBECONFIG"].map(str::to_owned);
    let operator: BTreeSet<String> = flags.chain(read_by_operator()).chain(others).collect();
    assert_eq!(on_the_page("The operator"), operator);

    let resolver = on_the_page("The resolver");
    let missing: Vec<String> = read_by_resolver().difference(&resolver).cloned().collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}

#[test]
fn the_page_gives_the_defaults_of_the_table() {
    for one in VARIABLES {
        let row = PAGE
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", one.name)));
        let row = row.unwrap_or_else(|| panic!("no row for {}", one.name));
        assert!(
            row.contains(&format!("| {} |", one.default)),
            "{row}, not {}",
            one.default
        );
    }
}
