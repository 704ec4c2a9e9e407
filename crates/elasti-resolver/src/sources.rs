//! Which pods the sources of connections are, for services that accept only some (`spec.hold.allowFrom`). The pods of a
//! namespace are followed only while connections ask about it; `elasti-core` decides.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use elasti_core::facts::own_addresses;
use elasti_core::sources::{LISTED_WITHIN, Membership, SourceRule};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::follow::{Change, Kept, Urgency, follow};

/// Namespaces that are followed for the services of one namespace: those of two specs with nothing in common. Of more,
/// the pods count as unknown.
const MAX_FOR_ONE_NAMESPACE: usize = 16;
/// Namespaces that are followed in all: 1,024 x 100 pods x 150 bytes = 15 MB.
const MAX_FOLLOWED: usize = 1024;
/// Pods of one namespace whose addresses are kept: 16,384 x 150 bytes = 2.4 MB.
const MAX_PODS: usize = 16_384;
/// Connections of one address that wait until it is known; more are refused at once.
const MAX_UNDECIDED: usize = 32;
/// A namespace that no connection has asked about for so long is not followed any more.
const UNUSED_AFTER: Duration = Duration::from_secs(600);

/// What is kept of a pod.
#[derive(Clone, Debug)]
struct PodAddresses {
    name: String,
    addresses: Vec<IpAddr>,
}

impl Kept for PodAddresses {
    type Object = Pod;

    fn from_object(pod: Pod) -> Self {
        Self {
            name: pod.name_any(),
            addresses: own_addresses(&pod),
        }
    }

    fn is_needed(&self) -> bool {
        !self.addresses.is_empty()
    }
}

/// The pods of one namespace, by address.
#[derive(Debug, Default)]
struct Pods {
    listed: bool,
    by_name: HashMap<String, Vec<IpAddr>>,
    addresses: HashSet<IpAddr>,
}

impl Pods {
    fn apply(&mut self, change: Change<PodAddresses>) {
        match change {
            Change::All(all) => {
                self.by_name.clear();
                all.into_iter().for_each(|pod| self.set(pod));
                self.listed = true;
            }
            Change::Set(pod) => self.set(pod),
            Change::Deleted(pod) => drop(self.by_name.remove(&pod.name)),
        }
        // An address may pass from one pod to the next, in either order of their events.
        self.addresses = self.by_name.values().flatten().copied().collect();
    }

    fn set(&mut self, PodAddresses { name, addresses }: PodAddresses) {
        if addresses.is_empty() {
            self.by_name.remove(&name);
        } else if self.by_name.len() < MAX_PODS || self.by_name.contains_key(&name) {
            self.by_name.insert(name, addresses);
        }
    }
}

/// A namespace that is followed; dropping it ends that.
#[derive(Debug)]
struct Followed {
    pods: Arc<RwLock<Pods>>,
    task: AbortHandle,
    /// When the services of each namespace last asked.
    asked: HashMap<String, Instant>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The sources of connections.
pub(crate) struct Sources {
    client: Client,
    /// The namespaces whose pods may be read; empty means all.
    readable: Vec<String>,
    followed: Mutex<HashMap<String, Followed>>,
    undecided: Mutex<HashMap<IpAddr, usize>>,
    changed: watch::Sender<()>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl Sources {
    pub(crate) fn new(client: Client, readable: Vec<String>) -> Self {
        Self {
            client,
            readable,
            followed: Mutex::default(),
            undecided: Mutex::default(),
            changed: watch::Sender::default(),
        }
    }

    /// Whether the rule of a service in `namespace` admits a source. One that may be a pod which is not known yet waits.
    pub(crate) async fn admit(&self, rule: &SourceRule, namespace: &str, source: IpAddr) -> bool {
        let source = source.to_canonical();
        let mut changed = self.changed.subscribe();
        let decide =
            |waited| rule.admits(source, waited, |of| self.membership(namespace, of, source));
        if let Some(decided) = decide(SignedDuration::ZERO) {
            return decided;
        }
        let Some(_undecided) = Undecided::begin(&self.undecided, source) else {
            return false;
        };
        let began = Instant::now();
        loop {
            let waited = SignedDuration::try_from(began.elapsed()).unwrap_or(LISTED_WITHIN);
            if let Some(decided) = decide(waited) {
                return decided;
            }
            // Whatever has changed, time passes as well.
            let _ = timeout(CHECK_INTERVAL, changed.changed()).await;
        }
    }

    fn membership(&self, owner: &str, namespace: &str, source: IpAddr) -> Membership {
        let Some(pods) = self.pods(owner, namespace) else {
            return Membership::Unreadable;
        };
        let pods = pods.read();
        match pods.addresses.contains(&source) {
            true => Membership::Pod,
            false if pods.listed => Membership::NoPod,
            false => Membership::Unlisted,
        }
    }

    /// The pods of a namespace, followed from now on if they were not; `None` if they cannot be.
    fn pods(&self, owner: &str, namespace: &str) -> Option<Arc<RwLock<Pods>>> {
        let now = Instant::now();
        let mut followed = self.followed.lock();
        if let Some(one) = followed.get_mut(namespace)
            && let Some(asked) = one.asked.get_mut(owner)
        {
            *asked = now;
            return Some(one.pods.clone());
        }
        let readable = self.readable.is_empty() || self.readable.iter().any(|one| one == namespace);
        let own = { followed.values() }.filter(|one| one.asked.contains_key(owner));
        if !readable || own.count() >= MAX_FOR_ONE_NAMESPACE {
            return None;
        }
        if !followed.contains_key(namespace) {
            if followed.len() >= MAX_FOLLOWED {
                tracing::warn!(namespace, "too many namespaces in allowFrom; not followed");
                return None;
            }
            followed.insert(namespace.to_owned(), self.follow(namespace));
        }
        let one = followed.get_mut(namespace)?;
        one.asked.insert(owner.to_owned(), now);
        Some(one.pods.clone())
    }

    fn follow(&self, namespace: &str) -> Followed {
        let pods = Arc::<RwLock<Pods>>::default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (known, changed) = (pods.clone(), self.changed.clone());
        // There may be a thousand of these watches, and nothing that is held waits for them.
        let following = follow(api, None, MAX_PODS, Urgency::Always, move |change| {
            known.write().apply(change);
            changed.send_replace(());
        });
        Followed {
            pods,
            task: tokio::spawn(following).abort_handle(),
            asked: HashMap::new(),
        }
    }

    /// Ends for ever what no connection asks about any more.
    pub(crate) async fn expire(self: Arc<Self>) {
        loop {
            sleep(UNUSED_AFTER / 10).await;
            let mut followed = self.followed.lock();
            followed.retain(|_, one| {
                one.asked.retain(|_, asked| asked.elapsed() < UNUSED_AFTER);
                !one.asked.is_empty()
            });
        }
    }
}

/// How often a source that is not known yet is looked at, even if nothing changes.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A connection whose source is not known yet; counts until it is dropped.
struct Undecided<'a> {
    all: &'a Mutex<HashMap<IpAddr, usize>>,
    source: IpAddr,
}

impl<'a> Undecided<'a> {
    fn begin(all: &'a Mutex<HashMap<IpAddr, usize>>, source: IpAddr) -> Option<Self> {
        let mut counts = all.lock();
        let count = counts.entry(source).or_default();
        if *count >= MAX_UNDECIDED {
            return None;
        }
        *count += 1;
        Some(Self { all, source })
    }
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        if let Some(count) = counts.get_mut(&self.source) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}
