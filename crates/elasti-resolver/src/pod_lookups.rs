//! Asks the API server whether a pod has the address that a slice gives it, before the first request goes there. Who may
//! write slices can forge them (CVE-2021-25740). Pods that are followed during a wake are known anyway. What was checked
//! once is used on while the API server does not answer; what was not gets nothing, as a tenant may delay answers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elasti_core::backends::{Backend, Candidate as _, has_address, is_object_name};
use elasti_core::ports::ServiceKey;
use k8s_openapi::api::core::v1 as core_v1;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::hold::Hold;
use crate::pod::Pod;
use crate::table::RouteTable;

/// A read of one object takes milliseconds; a request waits for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// After this it is asked again, beside the requests: a pod may have ended, and its address may be another's.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(60);
/// So long an address gets nothing before it is asked for again.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// After a refusal the next lookup of its namespace waits: who forges a thousand addresses costs four calls a second.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(250);
/// Pods that no request has come for yet are asked for at this pace: ten thousand in 17 minutes.
const PACE: Duration = Duration::from_millis(100);
/// How often the table is looked through for them.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What is known of one address of a pod: nothing (0), that the pod does not have it (`REFUSED`), or by when it is to be
/// asked again, in the clock's milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Standing(AtomicU64);

const UNKNOWN: u64 = 0;
const REFUSED: u64 = u64::MAX;

impl Standing {
    pub(crate) fn is_refused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == REFUSED
    }

    /// Its pod has it.
    pub(crate) fn set_known(&self, clock: Clock) {
        let millis = u64::try_from(KNOWN_FOR.as_millis()).unwrap_or(u64::MAX);
        let until = clock.millis().saturating_add(millis).min(REFUSED - 1);
        self.0.store(until, Ordering::Relaxed);
    }

    fn get(&self, clock: Clock) -> Known {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => Known::No,
            REFUSED => Known::Refused,
            until if clock.millis() < until => Known::Yes,
            _ => Known::Before,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    No,
    Yes,
    /// It had it a while ago.
    Before,
    Refused,
}

/// What the API server says.
#[derive(Clone, Copy, Debug)]
enum Answer {
    HasIt,
    HasItNot,
    None,
}

/// All lookups of one resolver: at most one at a time for each namespace.
#[derive(Clone)]
pub(crate) struct PodLookups {
    client: Client,
    clock: Clock,
    hold: Arc<Hold>,
    turns: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

impl std::fmt::Debug for PodLookups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodLookups").finish_non_exhaustive()
    }
}

impl PodLookups {
    pub(crate) fn new(client: Client, clock: Clock, hold: Arc<Hold>) -> Self {
        Self {
            client,
            clock,
            hold,
            turns: Arc::default(),
        }
    }

    /// Whether a request may go to this pod: it has this address, or had it when it was last asked.
    pub(crate) async fn admit(&self, key: &Arc<ServiceKey>, pod: &Pod) -> bool {
        match pod.state.standing.get(self.clock) {
            Known::Yes => true,
            Known::Refused => false,
            Known::Before => {
                self.ask_again(key, pod);
                true
            }
            Known::No => {
                let turn = self.turn(&key.namespace);
                let turn = turn.lock_owned().await;
                // Another request may have asked meanwhile.
                if pod.state.standing.get(self.clock) == Known::No {
                    self.ask(key, pod, turn).await;
                }
                pod.state.standing.get(self.clock) == Known::Yes
            }
        }
    }

    /// Beside the requests, unless a lookup of this namespace is under way: then a later request does it.
    fn ask_again(&self, key: &Arc<ServiceKey>, pod: &Pod) {
        let Ok(turn) = self.turn(&key.namespace).try_lock_owned() else {
            return;
        };
        let (lookups, key, pod) = (self.clone(), key.clone(), pod.clone());
        tokio::spawn(async move { lookups.ask(&key, &pod, turn).await });
    }

    /// Checks pods before a request comes for them, so that it need not wait, and comes through without the API server:
    /// in each round one of each namespace.
    pub(crate) async fn check_ahead(self, table: RouteTable) {
        loop {
            let mut namespaces = HashSet::new();
            for service in table.services() {
                if namespaces.contains(&service.key.namespace) {
                    continue;
                }
                let mut pods = service.ports.iter().flat_map(|port| &port.pods);
                let unknown = |pod: &&Pod| pod.state.standing.get(self.clock) == Known::No;
                if let Some(pod) = pods.find(|pod| pod.usable() && unknown(pod)) {
                    namespaces.insert(service.key.namespace.clone());
                    self.admit(&service.key, pod).await;
                    sleep(PACE).await;
                }
            }
            if namespaces.is_empty() {
                sleep(LOOK_INTERVAL).await;
            }
        }
    }

    async fn ask(&self, key: &Arc<ServiceKey>, pod: &Pod, turn: Turn) {
        let standing = &pod.state.standing;
        match self.answer(&key.namespace, &pod.backend).await {
            Answer::HasIt => standing.set_known(self.clock),
            Answer::None => {}
            Answer::HasItNot => {
                let Backend {
                    pod: name, address, ..
                } = &pod.backend;
                tracing::warn!(service = %key, pod = name, %address, "not forwarded: no pod of this name has this address");
                standing.0.store(REFUSED, Ordering::Relaxed);
                tokio::spawn(self.clone().end_refusal(key.clone(), pod.clone(), turn));
            }
        }
    }

    /// The pod may get its address back, and a slice may be mended.
    async fn end_refusal(self, key: Arc<ServiceKey>, pod: Pod, turn: Turn) {
        sleep(PAUSE_AFTER_REFUSAL).await;
        drop(turn);
        sleep(REFUSED_FOR).await;
        pod.state.standing.0.store(UNKNOWN, Ordering::Relaxed);
        self.hold.advance_all(&key);
    }

    /// A list of one, as the resolver may list pods and not get one. It is read past the API server's caches, so what it
    /// shows is newer than the slice.
    async fn answer(&self, namespace: &str, backend: &Backend) -> Answer {
        // What is no name would change what the selector means.
        if !is_object_name(&backend.pod) {
            return Answer::HasItNot;
        }
        let named = ListParams::default().fields(&format!("metadata.name={}", backend.pod));
        let api: Api<core_v1::Pod> = Api::namespaced(self.client.clone(), namespace);
        let answer = timeout(CALL_TIMEOUT, api.list(&named)).await;
        match answer {
            Ok(Ok(found)) => match found.items.iter().any(|pod| has_address(pod, backend)) {
                true => Answer::HasIt,
                false => Answer::HasItNot,
            },
            Ok(Err(error)) => {
                tracing::debug!(namespace, pod = backend.pod, %error, "cannot read a pod");
                Answer::None
            }
            Err(_) => Answer::None,
        }
    }

    fn turn(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        // Of a namespace that nothing is asked for nothing is kept.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(namespace.to_owned()).or_default().clone()
    }
}

type Turn = tokio::sync::OwnedMutexGuard<()>;
