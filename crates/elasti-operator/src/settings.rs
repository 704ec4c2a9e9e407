//! The settings of an operator; `environment.rs` reads them from flags and variables.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use elasti_core::observed;
use elasti_core::ports;
use elasti_runtime::sentry;
use jiff::SignedDuration;

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where wakes are taken and `/metrics` is served.
    pub wake: SocketAddr,
    /// The pod's own address, where other operators reach this one; without it no wakes are passed on to it.
    pub pod_ip: Option<IpAddr>,
    /// Where `/metrics` alone is served; `None` switches it off.
    pub metrics: Option<SocketAddr>,
    /// Where `/healthz` and `/readyz` are served; `None` switches it off.
    pub health: Option<SocketAddr>,
    /// The namespaces to watch; empty means all.
    pub namespaces: Vec<String>,
    /// The operator's own namespace, where its Lease is.
    pub operator_namespace: String,
    /// Whether to take part in leader election; without it this operator leads alone.
    pub leader_elect: bool,
    /// Where the resolver pods are.
    pub resolver_namespace: String,
    /// The resolvers' admin port, which serves `/activity`.
    pub resolver_port: u16,
    /// How often triggers are read.
    pub polling_interval: Duration,
    /// The Prometheus of triggers that name none.
    pub prometheus_address: Option<String>,
    /// What to send to that Prometheus, and to no other.
    pub prometheus_authorization: Option<String>,
    /// The servers that triggers may name, beside that one; empty means any.
    pub allowed_prometheus_servers: Vec<String>,
    /// Statuses show values also of that server, although it is asked with the operator's credential.
    pub show_trigger_values: bool,
    /// Prometheus may be on a loopback address. Only the in-process simulated cluster sets it.
    pub allow_loopback: bool,
    /// The users whose wakes are taken: the resolvers' service accounts; empty means none.
    pub wake_callers: Vec<String>,
    /// Wakes without a token are taken, as the predecessor did.
    pub allow_anonymous_wakes: bool,
    /// The token that is shown to resolvers.
    pub token_file: Option<PathBuf>,
    /// The folder of the certificate for TLS with resolvers; `None`: no TLS.
    pub tls_folder: Option<PathBuf>,
    /// Where listen ports come from.
    pub ports: RangeInclusive<u16>,
    /// How long a released listen port is not given to another service.
    pub port_quarantine: SignedDuration,
    /// Times that decisions use.
    pub times: observed::Settings,
    /// How many services are reconciled at once; of one namespace alone, half as many.
    pub concurrency: usize,
    /// Where errors and panics are sent, besides the log.
    pub sentry: Option<sentry::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self {
            wake: SocketAddr::new(any, 8013),
            pod_ip: None,
            metrics: Some(SocketAddr::new(any, 8080)),
            health: Some(SocketAddr::new(any, 8081)),
            namespaces: Vec::new(),
            operator_namespace: "elasti".into(),
            leader_elect: true,
            resolver_namespace: "elasti".into(),
            resolver_port: 8013,
            polling_interval: Duration::from_secs(30),
            prometheus_address: None,
            prometheus_authorization: None,
            allowed_prometheus_servers: Vec::new(),
            show_trigger_values: false,
            allow_loopback: false,
            wake_callers: vec!["system:serviceaccount:elasti:elasti-resolver".into()],
            allow_anonymous_wakes: false,
            token_file: None,
            tls_folder: None,
            ports: ports::DEFAULT_RANGE,
            port_quarantine: ports::DEFAULT_QUARANTINE,
            times: observed::Settings::default(),
            concurrency: 32,
            sentry: None,
        }
    }
}
