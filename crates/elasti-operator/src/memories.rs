//! What this operator remembers of each service between two reconciles, in memory only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use elasti_api::WakeClient;
use elasti_core::observed::{Report, SeenClient};
use elasti_core::stable_since::StableSince;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::apply::Applied;
use crate::clock::Clock;
use crate::error::Error;
use crate::name::Name;
use crate::observe::Memory;
use crate::slim::Declared;
use crate::term::Terms;

/// The memories of one operator.
#[derive(Debug)]
pub(crate) struct Memories {
    clock: Clock,
    terms: Arc<Terms>,
    /// Lasts for one term.
    /// In boxes: a table has room for up to twice as many, and one is almost a kilobyte.
    services: Mutex<HashMap<Name, Box<Memory>>>,
    /// When a wake of each service was last requested.
    wake_requests: Mutex<HashMap<Name, Timestamp>>,
    /// Whom each service was first woken for since it slept, where a resolver told it.
    wake_clients: Mutex<HashMap<Name, SeenClient>>,
    /// When we last scaled each service up from zero.
    wakes: Mutex<HashMap<Name, Timestamp>>,
    /// The step of each service that got no answer, and how often in a row.
    unanswered: Mutex<HashMap<Name, (&'static str, u32)>>,
    objects: Mutex<HashMap<Name, Object>>,
}

/// What is remembered of one ElastiService that was reconciled. Another one of its name, in a namespace that was made
/// again, knows nothing of it.
#[derive(Debug, Default)]
struct Object {
    uid: String,
    /// Its Services, for when only its name is left; the one that it names first.
    services: Vec<Name>,
    /// Its namespace is being deleted.
    namespace_terminating: bool,
}

impl Memories {
    pub(crate) fn new(clock: Clock, terms: Arc<Terms>) -> Self {
        Self {
            clock,
            terms,
            services: Mutex::default(),
            wake_requests: Mutex::default(),
            wake_clients: Mutex::default(),
            wakes: Mutex::default(),
            unanswered: Mutex::default(),
            objects: Mutex::default(),
        }
    }

    /// What is remembered of a service; nothing but the start of the term if it is new.
    pub(crate) fn get(&self, name: &Name) -> Memory {
        if let Some(memory) = self.services.lock().get(name) {
            return Memory::clone(memory);
        }
        let term = self.terms.current();
        let began = term.map_or_else(|| self.clock.now(), |term| term.began);
        let before = term.and_then(|term| term.previous_leader_until);
        Memory {
            stable_since: StableSince::fresh(began, before),
            reports: Vec::new(),
        }
    }

    pub(crate) fn set_stable_since(&self, name: &Name, stable_since: StableSince) {
        self.change(name, |memory| memory.stable_since = stable_since);
    }

    /// What became of a plan; `before` is what had been stable for how long when it was made.
    pub(crate) fn set_applied(&self, name: &Name, before: &StableSince, applied: &mut Applied) {
        applied.unanswered = self.count_unanswered(name, applied);
        if applied.has_woken() {
            self.set_woken(name);
        }
        // An earlier scale-down without an answer may still take effect.
        let pending = before.sent.is_some();
        if applied.has_not_scaled_down() && !pending {
            self.set_scale_down_refused(name);
        }
    }

    fn set_scale_down_refused(&self, name: &Name) {
        if let Some(memory) = self.services.lock().get_mut(name) {
            memory.stable_since.scale_down_refused();
        }
    }

    /// What each resolver last reported about a service, by the resolver's name.
    pub(crate) fn set_reports(&self, name: &Name, reports: BTreeMap<String, Report>) {
        self.change(name, |memory| {
            memory.reports = reports.into_iter().collect()
        });
    }

    fn change(&self, name: &Name, change: impl FnOnce(&mut Memory)) {
        if let Some(memory) = self.services.lock().get_mut(name) {
            return change(memory);
        }
        let mut memory = Box::new(self.get(name));
        change(&mut memory);
        self.services.lock().insert(name.clone(), memory);
    }

    pub(crate) fn wake_requested_at(&self, name: &Name) -> Option<Timestamp> {
        self.wake_requests.lock().get(name).copied()
    }

    /// A wake was requested just now.
    pub(crate) fn set_wake_requested(&self, name: &Name) {
        let now = self.clock.now();
        self.wake_requests.lock().insert(name.clone(), now);
    }

    pub(crate) fn wake_client(&self, name: &Name) -> Option<SeenClient> {
        self.wake_clients.lock().get(name).cloned()
    }

    /// A wake was requested for this client. Only the first one since the service slept woke it.
    pub(crate) fn set_wake_client(
        &self,
        name: &Name,
        client: WakeClient,
        slept: Option<Timestamp>,
    ) {
        let at = self.clock.now();
        if !self.knows_wake_client(name, slept) {
            let seen = SeenClient { at, client };
            self.wake_clients.lock().insert(name.clone(), seen);
        }
    }

    /// Whether it is known whom a service was woken for since it slept.
    pub(crate) fn knows_wake_client(&self, name: &Name, slept: Option<Timestamp>) -> bool {
        let clients = self.wake_clients.lock();
        clients.get(name).is_some_and(|seen| Some(seen.at) >= slept)
    }

    pub(crate) fn woken_at(&self, name: &Name) -> Option<Timestamp> {
        self.wakes.lock().get(name).copied()
    }

    /// It was scaled up from zero just now.
    pub(crate) fn set_woken(&self, name: &Name) {
        let now = self.clock.now();
        self.wakes.lock().insert(name.clone(), now);
    }

    /// Counts how often in a row the step that failed got no answer.
    fn count_unanswered(&self, name: &Name, applied: &Applied) -> u32 {
        let mut unanswered = self.unanswered.lock();
        match &applied.failed {
            Some((step, Error::NoAnswer(_))) => {
                let (last, count) = unanswered.entry(name.clone()).or_insert((step.name(), 0));
                if *last != step.name() {
                    (*last, *count) = (step.name(), 0);
                }
                *count = count.saturating_add(1);
                *count
            }
            // It was not sent, which says nothing.
            Some((_, Error::Expired | Error::NotLeader)) => 0,
            _ => {
                unanswered.remove(name);
                0
            }
        }
    }

    /// Another ElastiService had the name when it was last reconciled.
    pub(crate) fn is_replaced(&self, me: &Declared) -> bool {
        let objects = self.objects.lock();
        objects.get(&me.name).is_some_and(|one| one.uid != me.uid)
    }

    /// The namespace of this ElastiService is being deleted.
    pub(crate) fn is_namespace_terminating(&self, me: &Declared) -> bool {
        let objects = self.objects.lock();
        let same = objects.get(&me.name).filter(|one| one.uid == me.uid);
        same.is_some_and(|one| one.namespace_terminating)
    }

    pub(crate) fn set_namespace_terminating(&self, me: &Declared, terminating: bool) {
        let mut objects = self.objects.lock();
        if let Some(same) = objects.get_mut(&me.name).filter(|one| one.uid == me.uid) {
            same.namespace_terminating = terminating;
        }
    }

    /// The Services of an ElastiService; gives those that it had before and has no more.
    pub(crate) fn set_public_services(&self, me: &Declared, services: Vec<Name>) -> Vec<Name> {
        let mut objects = self.objects.lock();
        let one = objects.entry(me.name.clone()).or_default();
        one.uid.clone_from(&me.uid);
        let mut gone = std::mem::replace(&mut one.services, services);
        gone.retain(|service| !one.services.contains(service));
        gone
    }

    /// An ElastiService is gone; gives the Services that it had.
    pub(crate) fn forget(&self, name: &Name) -> Vec<Name> {
        self.services.lock().remove(name);
        self.wake_requests.lock().remove(name);
        self.wake_clients.lock().remove(name);
        self.wakes.lock().remove(name);
        self.unanswered.lock().remove(name);
        let gone = self.objects.lock().remove(name);
        gone.map(|one| one.services).unwrap_or_default()
    }

    /// A term begins or ends: what was seen before it counts for nothing. Gives the services that were remembered.
    pub(crate) fn clear_term(&self) -> Vec<Name> {
        self.unanswered.lock().clear();
        let mut services = self.services.lock();
        services.drain().map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use elasti_core::Step;
    use elasti_core::stable_since::SentScaleDown;
    use elasti_core::status::Refusal;

    use crate::leader::LeaderElection;
    use crate::slim::FromObject as _;

    fn declared(uid: &str) -> Declared {
        Declared::from_object(json!({
            "metadata": {"name": "web", "namespace": "pr-42", "uid": uid, "resourceVersion": "1"},
            "spec": {"service": "web", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_client_since_the_sleep_woke_it() {
        let terms = Terms::new(LeaderElection::without_lease().subscribe());
        let clock = Clock::start();
        let memories = Memories::new(clock, Arc::new(terms));
        let name = declared("web").name;
        let seen = |memories: &Memories| memories.wake_client(&name).unwrap().client.protocol;
        for protocol in ["http", "tls"] {
            memories.set_wake_client(&name, WakeClient::at(protocol, "10.1.2.3"), None);
        }
        assert_eq!(seen(&memories), "http");
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        let slept = Some(clock.now());
        for protocol in ["tls", "tcp"] {
            memories.set_wake_client(&name, WakeClient::at(protocol, "10.1.2.3"), slept);
        }
        assert_eq!(seen(&memories), "tls");
    }

    #[tokio::test]
    async fn a_step_without_an_answer_twice_in_a_row_is_reported_with_the_likely_cause() {
        let terms = Terms::new(LeaderElection::without_lease().subscribe());
        let memories = Memories::new(Clock::start(), Arc::new(terms));
        let name = declared("web").name;
        let refusal = |failed: Option<(Step, Error)>| {
            let mut applied = Applied {
                failed,
                ..Applied::default()
            };
            applied.unanswered = memories.count_unanswered(&name, &applied);
            applied.refusal()
        };
        let no_answer = || Error::NoAnswer("the API server did not answer in time".into());
        let hangs = || Some((Step::AddFinalizer, no_answer()));
        assert_eq!(refusal(hangs()), Refusal::Unknown, "once may be chance");
        assert_eq!(
            refusal(Some((Step::AddFinalizer, Error::Expired))),
            Refusal::Unknown
        );
        let reported = refusal(hangs());
        let Refusal::Step { step, why } = &reported else {
            panic!("{reported:?}");
        };
        assert_eq!(*step, Step::AddFinalizer.name());
        assert!(why.contains("usually an admission webhook hangs"), "{why}");
        assert_eq!(
            refusal(hangs()),
            reported,
            "the sentence stays, so that it is written once"
        );
        assert_eq!(
            refusal(Some((Step::Wake(1), no_answer()))),
            Refusal::Unknown,
            "another one"
        );
        assert_eq!(refusal(None), Refusal::None);
        assert_eq!(refusal(hangs()), Refusal::Unknown, "counted anew");
    }

    #[tokio::test]
    async fn a_scale_down_without_an_answer_stays_pending_and_one_that_was_refused_does_not() {
        let terms = Terms::new(LeaderElection::without_lease().subscribe());
        let memories = Memories::new(Clock::start(), Arc::new(terms));
        let name = declared("web").name;
        let nothing = memories.get(&name).stable_since;
        let mut sent = nothing.clone();
        sent.sent = Some(SentScaleDown {
            to: 0,
            generation: Some(3),
        });
        // Whether the scale-down is still pending after a plan that did not scale down.
        let pending_after = |before: &StableSince, failed: Option<(Step, Error)>| {
            // As it is set before the steps are sent.
            memories.set_stable_since(&name, sent.clone());
            let mut applied = Applied {
                failed,
                ..Applied::default()
            };
            memories.set_applied(&name, before, &mut applied);
            memories.get(&name).stable_since.sent.is_some()
        };
        let refused = || Some((Step::AddFinalizer, Error::Refused("by a webhook".into())));
        assert!(!pending_after(&nothing, refused()), "it was never sent");
        assert!(!pending_after(&nothing, None));
        for failed in [None, refused()] {
            assert!(
                pending_after(&sent, failed),
                "one of before may still take effect"
            );
        }
    }

    #[tokio::test]
    async fn a_namespace_that_was_made_again_is_not_going_away() {
        let terms = Terms::new(LeaderElection::without_lease().subscribe());
        let memories = Memories::new(Clock::start(), Arc::new(terms));
        let (before, again) = (declared("before"), declared("again"));
        memories.set_public_services(&before, vec![before.service()]);
        memories.set_namespace_terminating(&before, true);
        assert!(memories.is_namespace_terminating(&before));
        assert!(memories.is_replaced(&again));
        assert!(!memories.is_namespace_terminating(&again));
        // A reconcile of the old one that ends late.
        memories.forget(&before.name);
        memories.set_public_services(&again, vec![again.service()]);
        memories.set_namespace_terminating(&before, true);
        assert!(!memories.is_namespace_terminating(&again));
    }
}
