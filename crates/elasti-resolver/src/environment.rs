//! The settings by environment variables: the contract's, and a few of our own. All wrong values are named in one line.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use elasti_api::AllowFrom;
use elasti_core::ports::ServiceKey;
use elasti_core::schedule::GoDuration;
use elasti_core::sources::Cidr;
use elasti_runtime::environment::{Reading, Variable, WrongValues, variable};
use elasti_runtime::{otlp, sentry};
use jiff::SignedDuration;

use crate::settings::Settings;

/// Every variable that is read; a test compares this with what really is.
pub const VARIABLES: [Variable; 37] = [
    variable(
        "ELASTI_RESOLVER_PORT",
        "8013",
        "port of /metrics, /healthz, /readyz, /queue-status and /activity",
    ),
    variable(
        "ELASTI_RESOLVER_HEALTH_PORT",
        "8011",
        "port of /healthz and /readyz alone, for the kubelet",
    ),
    variable(
        "ELASTI_RESOLVER_PROXY_PORT",
        "8012",
        "port where requests are routed by host",
    ),
    variable(
        "ELASTI_RESOLVER_HOST_ROUTE",
        "true",
        "false closes that port: nothing is routed by host",
    ),
    variable(
        "ELASTI_RESOLVER_ALLOW_SAME_NAMESPACE",
        "false",
        "true: services whose spec has no hold.allowFrom accept pods of their own namespace; with this and the two below unset they accept any client",
    ),
    variable(
        "ELASTI_RESOLVER_ALLOW_NAMESPACES",
        "none",
        "the same for the pods of these namespaces, separated by commas",
    ),
    variable(
        "ELASTI_RESOLVER_ALLOW_CIDRS",
        "none",
        "the same for these blocks of addresses, separated by commas",
    ),
    variable(
        "ELASTI_RESOLVER_BIND_ADDRESS",
        "::",
        "the address that every port is opened on",
    ),
    variable(
        "ELASTI_OPERATOR_NAMESPACE",
        "elasti",
        "namespace of the operator",
    ),
    variable(
        "ELASTI_OPERATOR_SERVICE_NAME",
        "elasti-operator-controller-service",
        "Service of the operator",
    ),
    variable("ELASTI_OPERATOR_PORT", "8013", "port of that Service"),
    variable(
        "ELASTI_RESOLVER_OPERATOR_ADDRESS",
        "from the three above",
        "host and port of the operator, where it is no Service",
    ),
    variable(
        "ELASTI_RESOLVER_TOKEN_FILE",
        "none",
        "the projected token that is shown to the operator; read anew for each wake",
    ),
    variable(
        "ELASTI_RESOLVER_TLS_FOLDER",
        "none",
        "the folder of tls.crt, tls.key and ca.crt for TLS with the operator; read anew when they change",
    ),
    variable(
        "ELASTI_RESOLVER_ACTIVITY_READERS",
        "system:serviceaccount:<operator's namespace>:elasti-operator-controller-manager",
        "the users who may ask /activity, separated by commas",
    ),
    variable(
        "ELASTI_RESOLVER_SETTLE",
        "2s",
        "how long nodes take to follow an EndpointSlice; after SIGTERM, connections are accepted until none came for so long, 30 s at most",
    ),
    variable(
        "ELASTI_RESOLVER_PEERS",
        "none",
        "addresses of other resolvers, separated by commas; they are never forwarded to",
    ),
    variable(
        "ELASTI_RESOLVER_NAMESPACE",
        "elasti",
        "namespace of the resolvers' own Service",
    ),
    variable(
        "ELASTI_RESOLVER_SERVICE_NAME",
        "elasti-resolver-service",
        "the resolvers' own Service: whatever its EndpointSlices name is never forwarded to",
    ),
    variable(
        "ELASTI_RESOLVER_IDLE_TIMEOUT",
        "1h",
        "how long a TCP relay or a WebSocket may carry nothing, or a pod take nothing of an upload over HTTP/1.1, before it is ended; 0 means for ever",
    ),
    variable("POD_IP", "none", "this resolver's own address"),
    variable(
        "POD_IPS",
        "none",
        "this resolver's own addresses of both families, separated by commas",
    ),
    variable(
        "WATCH_NAMESPACES",
        "all",
        "the namespaces to serve, separated by commas",
    ),
    variable(
        "KUBERNETES_CLUSTER_DOMAIN",
        "cluster.local",
        "the cluster's DNS domain",
    ),
    variable(
        "REQ_TIMEOUT",
        "600",
        "seconds: the longest hold; a service may ask for less",
    ),
    variable(
        "QUEUE_SIZE",
        "10000",
        "requests of one service that may wait",
    ),
    variable(
        "HEADER_FOR_HOST",
        "Host",
        "the header that names the service on the host route",
    ),
    variable(
        "ELASTI_RESOLVER_MEMORY_GROUP",
        "/sys/fs/cgroup",
        "the cgroup (version 2) whose memory limit counts",
    ),
    variable(
        "ELASTI_RESOLVER_ALLOW_LOOPBACK",
        "false",
        "true lets pods have loopback addresses, as in the simulated cluster; never in a cluster",
    ),
    variable(
        "ELASTI_RESOLVER_ACCESS_LOG",
        "0",
        "the share of requests and connections that are logged as JSON lines, from 0 to 1",
    ),
    variable(
        "ELASTI_RESOLVER_WAKE_CLIENTS",
        "false",
        "true tells in statuses and Events who woke a service: method, path, user agent and address",
    ),
    otlp::VARIABLES[0],
    otlp::VARIABLES[1],
    otlp::VARIABLES[2],
    variable("RUST_LOG", "info", "which events are logged"),
    sentry::VARIABLES[0],
    sentry::VARIABLES[1],
];

/// Variables of the predecessor for which this design has no use; they are accepted.
pub const WITHOUT_USE: [&str; 10] = [
    "MAX_QUEUE_CONCURRENCY",
    "INITIAL_CAPACITY",
    "MAX_IDLE_PROXY_CONNS",
    "MAX_IDLE_PROXY_CONNS_PER_HOST",
    "ENABLE_H2C",
    "TRAFFIC_RE_ENABLE_DURATION",
    "TRAFFIC_DISABLE_GRACE_DURATION",
    "OPERATOR_RETRY_DURATION",
    "QUEUE_RETRY_DURATION",
    "CRD_CACHE_POLL_INTERVAL_MINUTES",
];

impl Settings {
    /// Reads the variables through `get`; an empty one counts as absent. Says in one log line which of the
    /// predecessor's variables have no use here.
    ///
    /// # Errors
    /// If values cannot be used: all of them.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, WrongValues> {
        let mut read = Reading::new(&get);
        let mut settings = Self::default();
        addresses(&mut read, &mut settings);
        operator(&mut read, &mut settings);
        resolvers(&mut read, &mut settings);
        sources(&mut read, &mut settings);
        bounds(&mut read, &mut settings);
        told(&mut read, &mut settings);
        settings.sentry = sentry::settings(&mut read);
        read.end(&[], &WITHOUT_USE)?;
        Ok(settings)
    }
}

/// The port of the host route.
const DEFAULT_PROXY_PORT: u16 = 8012;

/// Ports and addresses of our own.
fn addresses(read: &mut Reading<'_>, settings: &mut Settings) {
    if let Some(bind) = read.parsed("ELASTI_RESOLVER_BIND_ADDRESS", "an IP address") {
        settings.bind = bind;
    }
    let admin = read.port("ELASTI_RESOLVER_PORT");
    settings.admin = SocketAddr::new(settings.bind, admin.unwrap_or(settings.admin.port()));
    let health = read.port("ELASTI_RESOLVER_HEALTH_PORT");
    settings.health = SocketAddr::new(settings.bind, health.unwrap_or(settings.health.port()));
    let proxy = read.port("ELASTI_RESOLVER_PROXY_PORT");
    let proxy = SocketAddr::new(settings.bind, proxy.unwrap_or(DEFAULT_PROXY_PORT));
    let routes_by_host = read.parsed("ELASTI_RESOLVER_HOST_ROUTE", "true or false");
    settings.proxy = routes_by_host.unwrap_or(true).then_some(proxy);
    settings.host_header = read.parsed("HEADER_FOR_HOST", "the name of a header");
    if let Some(domain) = read.text("KUBERNETES_CLUSTER_DOMAIN") {
        settings.cluster_domain = domain;
    }
    settings.namespaces = read.list("WATCH_NAMESPACES");
}

/// Where the operator is, and who it is.
fn operator(read: &mut Reading<'_>, settings: &mut Settings) {
    let namespace = read
        .text("ELASTI_OPERATOR_NAMESPACE")
        .unwrap_or_else(|| "elasti".into());
    let service = read
        .text("ELASTI_OPERATOR_SERVICE_NAME")
        .unwrap_or_else(|| "elasti-operator-controller-service".into());
    let port = read.port("ELASTI_OPERATOR_PORT").unwrap_or(8013);
    let domain = &settings.cluster_domain;
    settings.operator = format!("{service}.{namespace}.svc.{domain}:{port}");
    let needed = "a host and a port with a colon between them";
    if let Some(HostPort(address)) = read.parsed("ELASTI_RESOLVER_OPERATOR_ADDRESS", needed) {
        settings.operator = address;
    }
    settings.token_file = read.text("ELASTI_RESOLVER_TOKEN_FILE").map(Into::into);
    settings.tls_folder = read.text("ELASTI_RESOLVER_TLS_FOLDER").map(Into::into);
    let readers = read.list("ELASTI_RESOLVER_ACTIVITY_READERS");
    settings.activity_readers = match readers.as_slice() {
        [] => [format!(
            "system:serviceaccount:{namespace}:elasti-operator-controller-manager"
        )]
        .into(),
        some => some.iter().cloned().collect(),
    };
}

/// Addresses that are never backends.
fn resolvers(read: &mut Reading<'_>, settings: &mut Settings) {
    let own: Option<IpAddr> = read.parsed("POD_IP", "an IP address");
    settings.own.extend(own);
    settings.resolvers.extend(own);
    for name in ["POD_IPS", "ELASTI_RESOLVER_PEERS"] {
        for text in read.list(name) {
            let needed = "IP addresses separated by commas";
            let address = read.parse::<IpAddr>(name, &text, &text, needed);
            settings.resolvers.extend(address);
            if name == "POD_IPS" {
                settings.own.extend(address);
            }
        }
    }
    settings.peers = Some(ServiceKey::new(
        read.text("ELASTI_RESOLVER_NAMESPACE")
            .unwrap_or_else(|| "elasti".into()),
        read.text("ELASTI_RESOLVER_SERVICE_NAME")
            .unwrap_or_else(|| "elasti-resolver-service".into()),
    ));
    let loopback = read.parsed("ELASTI_RESOLVER_ALLOW_LOOPBACK", "true or false");
    settings.allow_loopback = loopback.unwrap_or_default();
}

/// Which sources services accept whose spec does not say.
fn sources(read: &mut Reading<'_>, settings: &mut Settings) {
    let same_namespace = read.parsed("ELASTI_RESOLVER_ALLOW_SAME_NAMESPACE", "true or false");
    let namespaces = read.list("ELASTI_RESOLVER_ALLOW_NAMESPACES");
    let name = "ELASTI_RESOLVER_ALLOW_CIDRS";
    let cidrs = read.list(name);
    let needed = "blocks such as 10.0.0.0/8 separated by commas";
    for text in &cidrs {
        read.parse::<Cidr>(name, text, text, needed);
    }
    let allowed = AllowFrom {
        same_namespace,
        namespaces,
        cidrs,
    };
    let says = allowed.same_namespace == Some(true)
        || !allowed.namespaces.is_empty()
        || !allowed.cidrs.is_empty();
    settings.allow_from = says.then_some(allowed);
}

/// How much and how long.
fn bounds(read: &mut Reading<'_>, settings: &mut Settings) {
    if let Some(seconds) = read.parsed::<u32>("REQ_TIMEOUT", "a whole number of seconds") {
        settings.limits.timeout = SignedDuration::from_secs(seconds.max(1).into());
    }
    if let Some(size) = read.parsed::<u32>("QUEUE_SIZE", "a whole number of requests") {
        settings.limits.service_requests = size.max(1);
    }
    let needed = "a duration such as 2s or 500ms";
    if let Some(GoDuration(settle)) = read.parsed("ELASTI_RESOLVER_SETTLE", needed) {
        settings.settle = settle;
    }
    if read.text("ELASTI_RESOLVER_IDLE_TIMEOUT").as_deref() == Some("0") {
        settings.idle_timeout = None;
    } else if let Some(GoDuration(timeout)) = read.parsed(
        "ELASTI_RESOLVER_IDLE_TIMEOUT",
        "a duration such as 1h, or 0",
    ) {
        settings.idle_timeout = Some(timeout);
    }
    if let Some(group) = read.text("ELASTI_RESOLVER_MEMORY_GROUP") {
        settings.memory_group = group.into();
    }
}

/// What is told of requests.
fn told(read: &mut Reading<'_>, settings: &mut Settings) {
    let name = "ELASTI_RESOLVER_ACCESS_LOG";
    if let Some(Share(share)) = read.parsed(name, "a number from 0 to 1") {
        settings.access_log_share = share;
    }
    let clients = read.parsed("ELASTI_RESOLVER_WAKE_CLIENTS", "true or false");
    settings.wake_clients = clients.unwrap_or_default();
    settings.traces = otlp::settings(read);
}

/// From 0 to 1.
struct Share(f64);

impl FromStr for Share {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let share = text.parse().map_err(|_| ())?;
        let fits = (0.0..=1.0).contains(&share);
        fits.then_some(Self(share)).ok_or(())
    }
}

/// `host:port`, as it is looked up.
struct HostPort(String);

impl FromStr for HostPort {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (host, port) = text.rsplit_once(':').ok_or(())?;
        let fits = !host.is_empty() && port.parse::<std::num::NonZeroU16>().is_ok();
        fits.then(|| Self(text.to_owned())).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parse(pairs: &[(&str, &str)]) -> Result<Settings, WrongValues> {
        Settings::from_environment(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_contracts_variables_are_read() {
        let settings = parse(&[
            ("ELASTI_RESOLVER_PORT", "9013"),
            ("ELASTI_RESOLVER_PROXY_PORT", "9012"),
            ("ELASTI_RESOLVER_HEALTH_PORT", "9011"),
            ("ELASTI_OPERATOR_SERVICE_NAME", "op"),
            ("ELASTI_OPERATOR_NAMESPACE", "ns"),
            ("ELASTI_OPERATOR_PORT", "1"),
            ("KUBERNETES_CLUSTER_DOMAIN", "c.l"),
            ("REQ_TIMEOUT", "120"),
            ("QUEUE_SIZE", "7"),
            ("HEADER_FOR_HOST", "X-Envoy-Decorator-Operation"),
            ("WATCH_NAMESPACES", "a, b"),
            ("POD_IP", "10.0.0.7"),
            ("ENABLE_H2C", "false"),
            ("ELASTI_RESOLVER_BIND_ADDRESS", "10.0.0.7"),
            ("ELASTI_RESOLVER_TOKEN_FILE", "/t"),
            ("ELASTI_RESOLVER_SETTLE", "1500ms"),
            ("ELASTI_RESOLVER_PEERS", "10.0.0.8, fd00::8"),
            ("ELASTI_RESOLVER_ACCESS_LOG", "0.25"),
            ("ELASTI_RESOLVER_WAKE_CLIENTS", "true"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318"),
        ])
        .unwrap();
        assert!((settings.access_log_share - 0.25).abs() < f64::EPSILON);
        assert!(settings.wake_clients && settings.traces.is_some());
        let proxy = settings.proxy.unwrap();
        assert_eq!((settings.admin.port(), proxy.port()), (9013, 9012));
        assert_eq!(settings.allow_from, None);
        assert_eq!(settings.health.to_string(), "10.0.0.7:9011");
        assert_eq!(settings.operator, "op.ns.svc.c.l:1");
        assert_eq!(settings.limits.timeout, SignedDuration::from_secs(120));
        assert_eq!(settings.limits.service_requests, 7);
        assert_eq!(settings.host_header.unwrap(), "x-envoy-decorator-operation");
        assert_eq!(settings.namespaces, ["a", "b"]);
        for peer in ["10.0.0.7", "10.0.0.8", "fd00::8"] {
            assert!(
                settings.resolvers.contains(&peer.parse().unwrap()),
                "{peer}"
            );
        }
        assert_eq!(settings.admin.to_string(), "10.0.0.7:9013");
        assert_eq!(settings.token_file.unwrap().to_str(), Some("/t"));
        assert_eq!(settings.settle, Duration::from_millis(1500));
        let reader = "system:serviceaccount:ns:elasti-operator-controller-manager";
        assert_eq!(settings.activity_readers, [reader.to_owned()].into());
    }

    #[test]
    fn sources_are_restricted_and_the_host_route_is_closed() {
        let settings = parse(&[
            ("ELASTI_RESOLVER_HOST_ROUTE", "false"),
            ("ELASTI_RESOLVER_ALLOW_SAME_NAMESPACE", "true"),
            ("ELASTI_RESOLVER_ALLOW_NAMESPACES", "web, ingress"),
            ("ELASTI_RESOLVER_ALLOW_CIDRS", "10.0.0.0/8,fd00::/8"),
        ])
        .unwrap();
        assert_eq!(settings.proxy, None);
        let allowed = settings.allow_from.unwrap();
        assert_eq!(allowed.same_namespace, Some(true));
        assert_eq!(allowed.namespaces, ["web", "ingress"]);
        assert_eq!(allowed.cidrs, ["10.0.0.0/8", "fd00::/8"]);
        assert!(parse(&[("ELASTI_RESOLVER_ALLOW_CIDRS", "10.0.0.1")]).is_err());
    }

    #[test]
    fn every_variable_that_is_read_is_documented_and_no_other() {
        let read = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let _ = Settings::from_environment(|name| {
            read.borrow_mut().insert(name.to_owned());
            None
        });
        let documented = VARIABLES.iter().map(|one| one.name).chain(WITHOUT_USE);
        // Read by the logs, before anything else.
        let documented = documented
            .filter(|name| *name != "RUST_LOG")
            .map(str::to_owned);
        assert_eq!(read.into_inner(), documented.collect());
    }

    #[test]
    fn what_is_left_out_or_empty_has_its_default() {
        let settings = parse(&[("REQ_TIMEOUT", "")]).unwrap();
        assert_eq!(settings.operator, Settings::default().operator);
        assert_eq!(settings.limits.timeout, SignedDuration::from_secs(600));
        assert!(settings.namespaces.is_empty());
    }

    #[test]
    fn every_wrong_value_is_named_in_one_line() {
        let wrong = parse(&[
            ("REQ_TIMEOUT", "10m"),
            ("ELASTI_RESOLVER_PORT", "0"),
            ("ELASTI_RESOLVER_PEERS", "10.0.0.8,x"),
            ("ELASTI_RESOLVER_SETTLE", "2"),
            ("ELASTI_RESOLVER_OPERATOR_ADDRESS", "operator"),
            ("ELASTI_RESOLVER_ACCESS_LOG", "1.5"),
            ("ELASTI_RESOLVER_WAKE_CLIENTS", "yes"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
        ])
        .unwrap_err();
        let line = wrong.to_string();
        assert_eq!(wrong.0.len(), 8, "{line}");
        assert!(!line.contains('\n'), "{line}");
        for part in [
            "REQ_TIMEOUT=\"10m\" cannot be used: a whole number of seconds is needed",
            "ELASTI_RESOLVER_PORT=\"0\"",
            "ELASTI_RESOLVER_PEERS=\"x\"",
            "ELASTI_RESOLVER_SETTLE=\"2\"",
            "ELASTI_RESOLVER_OPERATOR_ADDRESS=\"operator\"",
            "ELASTI_RESOLVER_ACCESS_LOG=\"1.5\"",
            "ELASTI_RESOLVER_WAKE_CLIENTS=\"yes\"",
            "OTEL_EXPORTER_OTLP_ENDPOINT=(hidden)",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
