//! The settings of a resolver; `environment.rs` reads them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use elasti_api::AllowFrom;
use elasti_core::ports::ServiceKey;
use elasti_core::waiting_room::Limits;
use elasti_runtime::{file_limit, otlp, sentry};
use http::HeaderName;

/// All settings of one resolver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address of the listen ports.
    pub bind: IpAddr,
    /// Where `/metrics`, `/healthz`, `/readyz`, `/queue-status` and `/activity` are served.
    pub admin: SocketAddr,
    /// Where `/healthz` and `/readyz` alone are served, so that no other client can make probes fail.
    pub health: SocketAddr,
    /// Where requests are routed by host; `None`: nowhere.
    pub proxy: Option<SocketAddr>,
    /// Which sources services accept whose spec does not say; `None`: all.
    pub allow_from: Option<AllowFrom>,
    /// Host and port of the operator.
    pub operator: String,
    /// The projected token that authenticates to the operator.
    pub token_file: Option<PathBuf>,
    /// The folder of the certificate for TLS with the operator; `None`: no TLS.
    pub tls_folder: Option<PathBuf>,
    /// The namespaces to serve; empty means all.
    pub namespaces: Vec<String>,
    /// Bounds for what waits.
    pub limits: Limits,
    /// Addresses of resolvers, which are never backends.
    pub resolvers: BTreeSet<IpAddr>,
    /// Its own addresses among them: it ends only when no EndpointSlice names one.
    pub own: BTreeSet<IpAddr>,
    /// Pods may have loopback addresses. Only the in-process simulated cluster sets it.
    pub allow_loopback: bool,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// The header that names the host on the host route, before `Host`.
    pub host_header: Option<HeaderName>,
    /// The Service of all resolvers: whatever address its slices name is never a backend.
    pub peers: Option<ServiceKey>,
    /// How long a relay or an upgraded connection may carry nothing, or a pod take nothing of an upload over HTTP/1.1,
    /// before it is ended; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long nodes take to follow an EndpointSlice.
    pub settle: Duration,
    /// The limit of open files, which bounds the connections of clients.
    pub open_files: u64,
    /// The cgroup (version 2) whose memory limit counts.
    pub memory_group: PathBuf,
    /// The users who may ask `/activity`; empty means none.
    pub activity_readers: BTreeSet<String>,
    /// The share of requests and connections that the access log has, between 0 and 1.
    pub access_log_share: f64,
    /// Wake requests tell who they are for: method, path, user agent and address.
    pub wake_clients: bool,
    /// Where spans of holds are sent.
    pub traces: Option<otlp::Settings>,
    /// Where errors and panics are reported besides the log.
    pub sentry: Option<sentry::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self {
            bind: any,
            admin: SocketAddr::new(any, 8013),
            health: SocketAddr::new(any, 8011),
            proxy: Some(SocketAddr::new(any, 8012)),
            allow_from: None,
            operator: "elasti-operator-controller-service.elasti.svc.cluster.local:8013".into(),
            token_file: None,
            tls_folder: None,
            namespaces: Vec::new(),
            limits: Limits::default(),
            resolvers: BTreeSet::new(),
            own: BTreeSet::new(),
            allow_loopback: false,
            cluster_domain: "cluster.local".into(),
            host_header: None,
            peers: None,
            idle_timeout: Some(Duration::from_secs(3600)),
            settle: Duration::from_secs(2),
            open_files: file_limit::current(),
            memory_group: "/sys/fs/cgroup".into(),
            activity_readers: BTreeSet::new(),
            access_log_share: 0.0,
            wake_clients: false,
            traces: None,
            sentry: None,
        }
    }
}
