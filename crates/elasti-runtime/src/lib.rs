//! What every process of ours needs: environment, logs, Sentry, metrics, spans, signals, clock, HTTP server, token verification,
//! the Kubernetes client and its watches, turns of namespaces.

pub mod callers;
pub mod clock;
pub mod environment;
pub mod exit;
pub mod file_limit;
pub mod http_server;
pub mod kube_client;
pub mod lane;
pub mod logs;
pub mod metrics;
pub mod otlp;
pub mod peer_tls;
pub mod rate_limit;
pub mod sentry;
pub mod signals;
pub mod tls;
pub mod turns;
pub mod watch;
