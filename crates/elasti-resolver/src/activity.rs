//! The activity report for the operator: what arrived and is held for each service, for authorized callers only.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elasti_api::{Activity, ActivityReport, ListenPort, RouteGeneration};
use elasti_runtime::callers::{Callers, Flaw, NotVouched};
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::table::RouteTable;

/// What the report needs.
#[derive(Debug)]
pub(crate) struct ActivityReporter {
    pub(crate) clock: Clock,
    pub(crate) table: RouteTable,
    pub(crate) open_ports: Arc<Mutex<HashSet<u16>>>,
}

/// Whether a caller may ask.
pub(crate) async fn authorize(
    callers: &Callers,
    peer: IpAddr,
    headers: &HeaderMap,
) -> Result<(), NotVouched> {
    let header = headers.get(AUTHORIZATION);
    let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let token = token.ok_or(NotVouched::BadToken(Flaw::Malformed))?;
    callers.vouched(peer, token).await.map(|_| ())
}

/// The status code for a caller that may not.
pub(crate) fn status(why: NotVouched) -> StatusCode {
    match why {
        NotVouched::BadToken(_) => StatusCode::UNAUTHORIZED,
        NotVouched::Stranger => StatusCode::FORBIDDEN,
        NotVouched::TooOften => StatusCode::TOO_MANY_REQUESTS,
        NotVouched::NotChecked => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl ActivityReporter {
    /// A route counts only as far as its ports are open.
    pub(crate) fn report(&self) -> ActivityReport {
        let now = self.clock.millis();
        let open_ports = self.open_ports.lock().clone();
        let services = self.table.services().into_iter().map(|service| {
            let is_open = |port: &ListenPort| {
                let owned = self.table.owns(&service.key, port.listen_port);
                owned && open_ports.contains(&port.listen_port)
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
                held: service.stats.held.load(Ordering::Relaxed),
                open: service.stats.open.load(Ordering::Relaxed),
                last_connection_millis_ago: ago(&service.stats.last_arrival_millis),
                first_answer_millis_ago: ago(&service.stats.first_answer_millis),
            }
        });
        ActivityReport {
            services: services.collect(),
        }
    }
}
