//! Settings from flags and environment variables: the contract's, and a few of our own.
//! All wrong values are reported at once, in one line.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::Args;
use elasti_core::schedule::GoDuration;
use elasti_runtime::environment::{Reading, Variable, WrongValues, variable};
use elasti_runtime::sentry;
use jiff::SignedDuration;
use reqwest::Url;
use reqwest::header::HeaderValue;

use crate::settings::Settings;

/// The operator's flags.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Watch this namespace only; WATCH_NAMESPACES may name more
    #[arg(long, value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Where /metrics is served; 0 switches it off
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_bind_address: String,
    /// Where /healthz and /readyz are served; 0 switches it off
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,
    /// Let one operator among several lead; without it this one leads alone
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,
    /// Ignored, for compatibility with KubeElasti; metrics are served without TLS
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub metrics_secure: bool,
    /// Ignored, for compatibility with KubeElasti; metrics and health are served by HTTP/1.1
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub enable_http2: bool,
    /// Take wakes from callers without a token, as resolvers of KubeElasti are; anyone in the cluster can then wake
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub allow_anonymous_wakes: bool,
    #[command(flatten)]
    zap: ZapFlags,
}

/// The flags of the logger that KubeElasti uses: an installation that has set one must still start.
#[derive(Args, Clone, Debug)]
struct ZapFlags {
    /// Ignored, for compatibility with KubeElasti; RUST_LOG filters the log
    #[arg(long, hide = true, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    zap_devel: bool,
    /// Ignored, for compatibility with KubeElasti; RUST_LOG filters the log
    #[arg(long, hide = true, value_name = "ENCODER")]
    zap_encoder: Option<String>,
    /// Ignored, for compatibility with KubeElasti; RUST_LOG filters the log
    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_log_level: Option<String>,
    /// Ignored, for compatibility with KubeElasti; RUST_LOG filters the log
    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    /// Ignored, for compatibility with KubeElasti; RUST_LOG filters the log
    #[arg(long, hide = true, value_name = "ENCODING")]
    zap_time_encoding: Option<String>,
}

/// Every variable that is read; a test compares this with what really is.
pub const VARIABLES: [Variable; 20] = [
    variable(
        "ELASTI_OPERATOR_NAMESPACE",
        "elasti",
        "the operator's own namespace, where its Lease lies",
    ),
    variable(
        "ELASTI_OPERATOR_PORT",
        "8013",
        "port where wakes are taken and /metrics is served",
    ),
    variable(
        "ELASTI_OPERATOR_BIND_ADDRESS",
        "::",
        "the address that every port is opened on",
    ),
    variable(
        "ELASTI_OPERATOR_POD_IP",
        "none",
        "the pod's own address, where followers pass wakes on to it while it leads",
    ),
    variable(
        "ELASTI_OPERATOR_TLS_FOLDER",
        "none",
        "the folder of tls.crt, tls.key and ca.crt for TLS with resolvers; read anew when they change",
    ),
    variable(
        "ELASTI_OPERATOR_TOKEN_FILE",
        "none",
        "the projected token (audience elasti-resolver) that is shown to resolvers; read again for each request",
    ),
    variable(
        "ELASTI_OPERATOR_WAKE_CALLERS",
        "system:serviceaccount:<resolver's namespace>:elasti-resolver",
        "the users whose wakes are taken, separated by commas",
    ),
    variable(
        "ELASTI_OPERATOR_LISTEN_PORTS",
        "10000-29999",
        "the ports that resolvers listen on, one for each port of each service",
    ),
    variable(
        "ELASTI_OPERATOR_SETTLE",
        "2s",
        "how long nodes take to follow an EndpointSlice",
    ),
    variable(
        "ELASTI_OPERATOR_ALLOW_LOOPBACK",
        "false",
        "true lets triggers name loopback and link-local addresses, as in the simulated cluster; never in a cluster",
    ),
    variable(
        "ELASTI_RESOLVER_NAMESPACE",
        "elasti",
        "namespace of the resolver pods",
    ),
    variable(
        "ELASTI_RESOLVER_PORT",
        "8013",
        "the resolvers' port of /activity",
    ),
    variable(
        "POLLING_INTERVAL",
        "30s",
        "how often triggers are read, as a Go duration",
    ),
    variable(
        "WATCH_NAMESPACES",
        "all",
        "the namespaces to watch, separated by commas",
    ),
    variable(
        "PROMETHEUS_TRIGGER_SERVER_ADDRESS",
        "none",
        "the Prometheus server of triggers that name none",
    ),
    variable(
        "PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER",
        "none",
        "the Authorization header for that server, and for no other",
    ),
    variable(
        "PROMETHEUS_TRIGGER_ALLOWED_SERVERS",
        "any",
        "the servers that triggers may name, separated by commas; the one above is always allowed",
    ),
    variable(
        "PROMETHEUS_TRIGGER_SHOW_VALUES",
        "false",
        "true shows the values of triggers in statuses although the server is asked with that header",
    ),
    sentry::VARIABLES[0],
    sentry::VARIABLES[1],
];

/// Variables of the predecessor that have no effect here; they are accepted.
pub const IGNORED: [&str; 6] = [
    "ELASTI_OPERATOR_DEPLOYMENT_NAME",
    "ELASTI_OPERATOR_SERVICE_NAME",
    "ELASTI_RESOLVER_DEPLOYMENT_NAME",
    "ELASTI_RESOLVER_SERVICE_NAME",
    "ELASTI_RESOLVER_PROXY_PORT",
    "KUBERNETES_CLUSTER_DOMAIN",
];

impl Settings {
    /// Reads the flags, and the variables through `get`; an empty one counts as absent. Logs in one line which of the
    /// predecessor's flags and variables have no effect here.
    ///
    /// # Errors
    /// If values cannot be used: all of them.
    pub fn from_environment(
        flags: &Flags,
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, WrongValues> {
        let mut read = Reading::new(&get);
        let mut settings = Self {
            leader_elect: flags.leader_elect,
            allow_anonymous_wakes: flags.allow_anonymous_wakes,
            ..Self::default()
        };
        listeners(&mut read, flags, &mut settings);
        resolvers(&mut read, &mut settings);
        prometheus(&mut read, &mut settings);
        times_and_ports(&mut read, &mut settings);
        namespaces(&mut read, flags, &mut settings);
        let accepted = [
            (flags.metrics_secure, "--metrics-secure"),
            (flags.enable_http2, "--enable-http2"),
            (flags.zap.zap_devel, "--zap-devel"),
            (flags.zap.zap_encoder.is_some(), "--zap-encoder"),
            (flags.zap.zap_log_level.is_some(), "--zap-log-level"),
            (
                flags.zap.zap_stacktrace_level.is_some(),
                "--zap-stacktrace-level",
            ),
            (flags.zap.zap_time_encoding.is_some(), "--zap-time-encoding"),
        ];
        let accepted: Vec<&str> = accepted
            .into_iter()
            .filter_map(|(given, flag)| given.then_some(flag))
            .collect();
        settings.sentry = sentry::settings(&mut read);
        read.end(&accepted, &IGNORED)?;
        Ok(settings)
    }
}

/// Our own ports.
fn listeners(read: &mut Reading<'_>, flags: &Flags, settings: &mut Settings) {
    let bind = read.parsed("ELASTI_OPERATOR_BIND_ADDRESS", "an IP address");
    let bind = bind.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let port = read.port("ELASTI_OPERATOR_PORT");
    settings.wake = SocketAddr::new(bind, port.unwrap_or(settings.wake.port()));
    settings.pod_ip = read.parsed("ELASTI_OPERATOR_POD_IP", "an IP address");
    let metrics = &flags.metrics_bind_address;
    settings.metrics = address(read, "--metrics-bind-address", metrics, bind);
    let health = &flags.health_probe_bind_address;
    settings.health = address(read, "--health-probe-bind-address", health, bind);
    if let Some(namespace) = read.text("ELASTI_OPERATOR_NAMESPACE") {
        settings.operator_namespace = namespace;
    }
}

/// The resolvers, and how we authenticate each other.
fn resolvers(read: &mut Reading<'_>, settings: &mut Settings) {
    if let Some(namespace) = read.text("ELASTI_RESOLVER_NAMESPACE") {
        settings.resolver_namespace = namespace;
    }
    if let Some(port) = read.port("ELASTI_RESOLVER_PORT") {
        settings.resolver_port = port;
    }
    settings.token_file = read.text("ELASTI_OPERATOR_TOKEN_FILE").map(Into::into);
    settings.tls_folder = read.text("ELASTI_OPERATOR_TLS_FOLDER").map(Into::into);
    let namespace = &settings.resolver_namespace;
    settings.wake_callers = match read.list("ELASTI_OPERATOR_WAKE_CALLERS") {
        none if none.is_empty() => {
            vec![format!("system:serviceaccount:{namespace}:elasti-resolver")]
        }
        some => some,
    };
}

fn prometheus(read: &mut Reading<'_>, settings: &mut Settings) {
    let name = "PROMETHEUS_TRIGGER_SERVER_ADDRESS";
    // It may carry a password.
    if let Some(address) = read.text(name) {
        if !is_server(&address) {
            read.wrong_secret(name, "an http or https address");
        }
        settings.prometheus_address = Some(address);
    }
    let name = "PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER";
    if let Some(header) = read.text(name) {
        if HeaderValue::from_str(&header).is_err() {
            read.wrong_secret(name, "the value of a header");
        }
        settings.prometheus_authorization = Some(header);
    }
    let name = "PROMETHEUS_TRIGGER_ALLOWED_SERVERS";
    let allowed = read.list(name);
    if allowed.iter().any(|one| !is_server(one)) {
        read.wrong_secret(name, "http or https addresses, separated by commas");
    }
    settings.allowed_prometheus_servers = allowed;
    let show = read.parsed("PROMETHEUS_TRIGGER_SHOW_VALUES", "true or false");
    settings.show_trigger_values = show.unwrap_or_default();
    let loopback = read.parsed("ELASTI_OPERATOR_ALLOW_LOOPBACK", "true or false");
    settings.allow_loopback = loopback.unwrap_or_default();
}

fn is_server(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

fn times_and_ports(read: &mut Reading<'_>, settings: &mut Settings) {
    let needed = "a duration such as 30s or 1m30s";
    if let Some(GoDuration(interval)) = read.parsed("POLLING_INTERVAL", needed) {
        settings.polling_interval = interval;
    }
    let needed = "a duration such as 2s or 500ms";
    if let Some(GoDuration(settle)) = read.parsed("ELASTI_OPERATOR_SETTLE", needed) {
        settings.times.settle = SignedDuration::try_from(settle).unwrap_or(SignedDuration::MAX);
    }
    let needed = "two port numbers with a dash between them";
    if let Some(PortRange(ports)) = read.parsed("ELASTI_OPERATOR_LISTEN_PORTS", needed) {
        settings.ports = ports;
    }
}

fn namespaces(read: &mut Reading<'_>, flags: &Flags, settings: &mut Settings) {
    let flag = flags.watch_namespace.clone();
    let named = read.list("WATCH_NAMESPACES");
    settings.namespaces = flag.into_iter().filter(|one| !one.is_empty()).collect();
    for namespace in named {
        if !settings.namespaces.contains(&namespace) {
            settings.namespaces.push(namespace);
        }
    }
}

/// `:8080`, `127.0.0.1:8080`, or `0` for nothing, as Go's controllers take it.
fn address(
    read: &mut Reading<'_>,
    name: &'static str,
    text: &str,
    bind: IpAddr,
) -> Option<SocketAddr> {
    if text == "0" {
        return None;
    }
    let needed = "an address such as :8080 or 127.0.0.1:8080, or 0";
    match text.strip_prefix(':') {
        Some(port) => {
            let port: Option<NonZeroU16> = read.parse(name, text, port, needed);
            port.map(|port| SocketAddr::new(bind, port.get()))
        }
        None => read.parse(name, text, text, needed),
    }
}

/// `10000-29999`.
struct PortRange(RangeInclusive<u16>);

impl FromStr for PortRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (first, last) = text.split_once('-').ok_or(())?;
        let port = |text: &str| text.trim().parse::<NonZeroU16>().map_err(|_| ());
        let (first, last) = (port(first)?.get(), port(last)?.get());
        (first <= last).then_some(Self(first..=last)).ok_or(())
    }
}
