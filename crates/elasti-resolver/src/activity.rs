//! Answers the operator's question "what have you seen?", for callers that Kubernetes vouches for.
//! Never tells anything about a client.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use elasti_api::{Activity, ActivityReport, ListenPort, RouteGeneration};
use elasti_runtime::callers::{Flaw, NotVouched};
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap};

use crate::resolver::Resolver;

/// Whether a caller may ask.
pub(crate) async fn may_ask(
    resolver: &Resolver,
    peer: IpAddr,
    headers: &HeaderMap,
) -> Result<(), NotVouched> {
    let shown = headers.get(AUTHORIZATION);
    let token = shown.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let token = token.ok_or(NotVouched::BadToken(Flaw::Malformed))?;
    resolver.callers.vouched(peer, token).await.map(|_| ())
}

/// The code for a caller that may not.
pub(crate) fn code(why: NotVouched) -> StatusCode {
    match why {
        NotVouched::BadToken(_) => StatusCode::UNAUTHORIZED,
        NotVouched::Stranger => StatusCode::FORBIDDEN,
        NotVouched::TooOften => StatusCode::TOO_MANY_REQUESTS,
        NotVouched::NotChecked => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// What this resolver has seen. A route counts only as far as its ports are open.
pub(crate) fn report(resolver: &Resolver) -> ActivityReport {
    let now = resolver.clock.millis();
    let listening = resolver.listening.lock().clone();
    let table = resolver.table.load();
    let services = table.services.values().map(|service| {
        let is_open = |port: &ListenPort| {
            let owner = table.listen_ports.get(&port.listen_port);
            owner == Some(&service.key) && listening.contains(&port.listen_port)
        };
        let open: Vec<ListenPort> = service
            .ports
            .iter()
            .map(|port| port.listen.clone())
            .filter(is_open)
            .collect();
        let ago = |millis: &AtomicU64| match millis.load(Ordering::Relaxed) {
            0 => None,
            at => Some(now.saturating_sub(at)),
        };
        Activity {
            namespace: service.key.namespace.clone(),
            service: service.key.service.clone(),
            route_generation: RouteGeneration::from_ports(&open),
            held: service.seen.held.load(Ordering::Relaxed),
            open: service.seen.open.load(Ordering::Relaxed),
            last_connection_millis_ago: ago(&service.seen.last_millis),
            first_answer_millis_ago: ago(&service.seen.first_answer_millis),
        }
    });
    ActivityReport {
        services: services.collect(),
    }
}
