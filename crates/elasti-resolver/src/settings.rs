//! The settings of a resolver; `environment.rs` reads them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use elasti_core::ports::ServiceKey;
use elasti_core::waiting_room::Limits;
use elasti_runtime::sentry;
use http::HeaderName;

/// All settings of one resolver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address of the listen ports.
    pub bind: IpAddr,
    /// Where `/metrics`, `/healthz`, `/readyz`, `/queue-status` and `/activity` are served.
    pub admin: SocketAddr,
    /// Where requests are routed by host.
    pub proxy: SocketAddr,
    /// Host and port of the operator.
    pub operator: String,
    /// The projected token that authenticates to the operator.
    pub token_file: Option<PathBuf>,
    /// The namespaces to serve; empty means all.
    pub namespaces: Vec<String>,
    /// Bounds for what waits.
    pub limits: Limits,
    /// Addresses of resolvers, which are never backends.
    pub resolvers: BTreeSet<IpAddr>,
    /// Pods may have loopback addresses. Only the in-process simulated cluster sets it.
    pub allow_loopback: bool,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// The header that names the host on the host route, before `Host`.
    pub host_header: Option<HeaderName>,
    /// The Service of all resolvers: whatever address its slices name is never a backend.
    pub peers: Option<ServiceKey>,
    /// How long a relay or an upgraded connection may carry nothing before it is ended; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long nodes take to follow an EndpointSlice.
    pub settle: Duration,
    /// The cgroup (version 2) whose memory limit counts.
    pub memory_group: PathBuf,
    /// The users who may ask `/activity`; empty means none.
    pub activity_readers: BTreeSet<String>,
    /// Where errors and panics are reported besides the log.
    pub sentry: Option<sentry::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self {
            bind: any,
            admin: SocketAddr::new(any, 8013),
            proxy: SocketAddr::new(any, 8012),
            operator: "elasti-operator-controller-service.elasti.svc.cluster.local:8013".into(),
            token_file: None,
            namespaces: Vec::new(),
            limits: Limits::default(),
            resolvers: BTreeSet::new(),
            allow_loopback: false,
            cluster_domain: "cluster.local".into(),
            host_header: None,
            peers: None,
            idle_timeout: Some(Duration::from_secs(3600)),
            settle: Duration::from_secs(2),
            memory_group: "/sys/fs/cgroup".into(),
            activity_readers: BTreeSet::new(),
            sentry: None,
        }
    }
}
