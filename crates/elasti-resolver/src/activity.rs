//! Answers the operator's question "what have you seen?", for callers that Kubernetes vouches for.
//! Never tells anything about a client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elasti_api::{Activity, ActivityReport, ListenPort, RouteGeneration, names};
use http::header::{AUTHORIZATION, HeaderMap};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::resolver::Resolver;

/// A token that was good is good for this long.
const TRUST: Duration = Duration::from_secs(60);
const REVIEW_PATIENCE: Duration = Duration::from_secs(3);
/// Operators ask with one token each; more are somebody's guesses.
const MOST_TRUSTED: usize = 16;

/// Tokens that Kubernetes has vouched for, and since when.
#[derive(Debug, Default)]
pub(crate) struct Trusted(Mutex<HashMap<String, Instant>>);

/// Whether a caller may ask.
pub(crate) async fn may_ask(resolver: &Resolver, headers: &HeaderMap) -> bool {
    let token = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(token) = token else { return false };
    if resolver
        .trusted
        .0
        .lock()
        .get(token)
        .is_some_and(|since| since.elapsed() < TRUST)
    {
        return true;
    }
    let user = timeout(REVIEW_PATIENCE, review(resolver, token))
        .await
        .ok()
        .flatten();
    let known = user.is_some_and(|user| resolver.settings.activity_readers.contains(&user));
    if known {
        let mut trusted = resolver.trusted.0.lock();
        trusted.retain(|_, since| since.elapsed() < TRUST);
        if trusted.len() < MOST_TRUSTED {
            trusted.insert(token.to_owned(), Instant::now());
        }
    }
    known
}

/// Whose token this is.
async fn review(resolver: &Resolver, token: &str) -> Option<String> {
    let question = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            audiences: Some(vec![names::ACTIVITY_AUDIENCE.to_owned()]),
        },
        ..TokenReview::default()
    };
    let reviews: Api<TokenReview> = Api::all(resolver.client.clone());
    let answer = reviews
        .create(&PostParams::default(), &question)
        .await
        .ok()?
        .status?;
    // A server that knows no audiences names none; then the token may be meant for anybody.
    let for_us = answer
        .audiences
        .into_iter()
        .flatten()
        .any(|one| one == names::ACTIVITY_AUDIENCE);
    answer
        .user
        .filter(|_| for_us && answer.authenticated == Some(true))?
        .username
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
            route_generation: RouteGeneration::of(&open),
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
