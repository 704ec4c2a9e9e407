//! Leader election by one Lease, renewed well before it ends and released on a clean shutdown. This process counts as
//! leader for less time than the others leave the Lease alone, so there are never two.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use elasti_core::observed::Leadership;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::clock::Clock;

/// No other candidate takes the Lease before it has seen it unchanged for this long.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long a renewal counts for us, from before it was sent. The rest of the Lease is for a write that is still in
/// flight, and for clocks that run at different speeds.
const LEADERSHIP_DURATION: Duration = Duration::from_secs(10);
/// 12 writes a minute. Two attempts fit before [`LEADERSHIP_DURATION`] is over.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The Lease of another version may ask for a longer wait than ours, but not for ever.
const MAX_FOREIGN_LEASE_DURATION: Duration = Duration::from_secs(60);
/// While another operator leads, the Lease changes every few seconds, so a dead watch is noticed long before this.
const WATCH_TIMEOUT_SECONDS: u32 = 290;

/// Why a call for the Lease failed.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    /// It was written in between.
    #[error("the Lease was written by another process")]
    Conflict,
    /// It is written again and again, and we still hold it.
    #[error("the Lease is being written by another process")]
    Busy,
    /// Kubernetes did not answer in time.
    #[error("Kubernetes did not answer")]
    NoAnswer,
    /// Kubernetes refused.
    #[error("{0}")]
    Refused(kube::Error),
}

impl From<kube::Error> for LeaseError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            other => Self::Refused(other),
        }
    }
}

/// One call to the API server.
async fn call<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, LeaseError> {
    match timeout(CALL_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(LeaseError::NoAnswer),
    }
}

/// This process's part in the election.
#[derive(Debug)]
pub struct LeaderElection {
    leadership: watch::Sender<Leadership>,
    leader: watch::Sender<Option<SocketAddr>>,
    previous_leader_until: Arc<Mutex<Option<Timestamp>>>,
    candidate: Option<Candidate>,
    task: Option<JoinHandle<()>>,
}

impl LeaderElection {
    /// Takes part in the election in `namespace` until this is dropped or released. `address` is where this process takes
    /// wakes, for the others to know.
    #[must_use]
    pub fn start(
        client: Client,
        namespace: &str,
        address: Option<SocketAddr>,
        clock: Clock,
    ) -> Self {
        let candidate = Candidate {
            api: Api::namespaced(client, namespace),
            identity: identity(),
            address,
            clock,
            leadership: watch::Sender::new(Leadership::Follower),
            leader: watch::Sender::new(None),
            previous_leader_until: Arc::default(),
        };
        Self {
            leadership: candidate.leadership.clone(),
            leader: candidate.leader.clone(),
            previous_leader_until: candidate.previous_leader_until.clone(),
            task: Some(tokio::spawn(candidate.clone().run())),
            candidate: Some(candidate),
        }
    }

    /// Leads without a Lease: for an operator that runs alone, without `--leader-elect`.
    #[must_use]
    pub fn without_lease() -> Self {
        let until = Timestamp::MAX;
        Self {
            leadership: watch::Sender::new(Leadership::Leader { until }),
            leader: watch::Sender::new(None),
            previous_leader_until: Arc::default(),
            candidate: None,
            task: None,
        }
    }

    /// Whether this process leads, and until when; it moves on with each renewal.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Where another operator that leads takes wakes, as far as the Lease tells; `None` while this process leads.
    #[must_use]
    pub fn leader_address(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.leader.subscribe()
    }

    /// The last renewal of the leader before this one, as found in the Lease when this process took it.
    #[must_use]
    pub fn previous_leader_until(&self) -> Option<Timestamp> {
        *self.previous_leader_until.lock()
    }

    /// Stops leading and releases the Lease, so that another operator leads at once. Call it when no write is in
    /// flight.
    pub async fn release(mut self) {
        self.leadership.send_replace(Leadership::Follower);
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        // The aborted task may have renewed once more.
        self.leadership.send_replace(Leadership::Follower);
        if let Some(candidate) = self.candidate.take() {
            candidate.release().await;
        }
    }
}

impl Drop for LeaderElection {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.leadership.send_replace(Leadership::Follower);
    }
}

/// The pod's name as far as there is one, so that people can read the Lease; random, so that a restarted container
/// of the same pod is another candidate.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), rand::random::<u64>())
}

/// Where the holder of a Lease takes wakes. The annotation of a holder before, which one that knows nothing of it leaves
/// there, does not count.
fn leader_address(lease: &Lease) -> Option<SocketAddr> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    let annotations = lease.metadata.annotations.as_ref()?;
    let written = annotations.get(names::LEADER_ADDRESS_ANNOTATION)?;
    let (identity, address) = written.split_once(' ')?;
    address.parse().ok().filter(|_| identity == holder)
}

/// The Lease as last seen, and since when its holder has not renewed it.
#[derive(Clone, Debug)]
struct ObservedLease {
    lease: Lease,
    since: Instant,
}

impl ObservedLease {
    fn new(lease: Lease) -> Self {
        Self {
            lease,
            since: Instant::now(),
        }
    }

    /// A newer version; only the holder's renewals count as a change.
    fn update(&mut self, lease: Lease) {
        let renewal = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            (spec.holder_identity, spec.renew_time)
        };
        if renewal(&lease) != renewal(&self.lease) {
            self.since = Instant::now();
        }
        self.lease = lease;
    }

    /// When it is free, by our own clock only: clocks of two machines are never compared.
    fn free_at(&self) -> Instant {
        let spec = self.lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        if holder.unwrap_or_default().is_empty() {
            return self.since;
        }
        let duration = spec
            .and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok())
            .map_or(LEASE_DURATION, Duration::from_secs);
        self.since + duration.min(MAX_FOREIGN_LEASE_DURATION)
    }
}

/// A process that wants the Lease.
#[derive(Clone, Debug)]
struct Candidate {
    api: Api<Lease>,
    identity: String,
    address: Option<SocketAddr>,
    clock: Clock,
    leadership: watch::Sender<Leadership>,
    leader: watch::Sender<Option<SocketAddr>>,
    previous_leader_until: Arc<Mutex<Option<Timestamp>>>,
}

impl Candidate {
    async fn run(self) {
        // Outlives failed calls: a server that flaps must not keep a dead leader's Lease alive.
        let mut observed = None;
        loop {
            match self.acquire(&mut observed).await {
                Ok(held) => {
                    observed = None;
                    self.lead(held).await;
                }
                Err(LeaseError::Conflict) => pause().await,
                Err(error) => {
                    tracing::warn!(%error, "lease acquisition failed; retrying");
                    pause().await;
                }
            }
        }
    }

    /// Waits until the Lease is free, and takes it.
    async fn acquire(&self, observed: &mut Option<ObservedLease>) -> Result<HeldLease, LeaseError> {
        let Some(lease) = call(self.api.get_opt(names::LEASE)).await? else {
            *observed = None;
            return self.take(None).await;
        };
        self.leader.send_replace(leader_address(&lease));
        let observed = match observed {
            Some(observed) => {
                observed.update(lease);
                observed
            }
            None => observed.insert(ObservedLease::new(lease)),
        };
        loop {
            match self.wait_until_free(observed).await? {
                Waited::Free => return self.take(Some(observed.lease.clone())).await,
                Waited::Deleted => return self.take(None).await,
                Waited::WatchEnded => {}
            }
        }
    }

    /// Watches the Lease until it is free.
    async fn wait_until_free(&self, observed: &mut ObservedLease) -> Result<Waited, LeaseError> {
        if observed.free_at() <= Instant::now() {
            return Ok(Waited::Free);
        }
        let params = WatchParams::default()
            .fields(&format!("metadata.name={}", names::LEASE))
            .timeout(WATCH_TIMEOUT_SECONDS);
        let version = observed.lease.metadata.resource_version.clone();
        let events = call(self.api.watch(&params, version.as_deref().unwrap_or("0"))).await?;
        let mut events = events.boxed();
        loop {
            let event = tokio::select! {
                event = events.try_next() => event?,
                () = sleep_until(observed.free_at()) => return Ok(Waited::Free),
            };
            match event {
                Some(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                    self.leader.send_replace(leader_address(&lease));
                    observed.update(lease);
                }
                Some(WatchEvent::Deleted(_)) => return Ok(Waited::Deleted),
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(status)) => {
                    return Err(LeaseError::Refused(kube::Error::Api(status)));
                }
                None => return Ok(Waited::WatchEnded),
            }
        }
    }

    /// Takes a Lease that is free; if another candidate was faster, Kubernetes refuses.
    async fn take(&self, found: Option<Lease>) -> Result<HeldLease, LeaseError> {
        let (now, started) = (self.clock.now(), Instant::now());
        let spec = found
            .as_ref()
            .and_then(|lease| lease.spec.clone())
            .unwrap_or_default();
        let mut metadata = match &found {
            Some(lease) => lease.metadata.clone(),
            None => ObjectMeta {
                name: Some(names::LEASE.to_owned()),
                ..ObjectMeta::default()
            },
        };
        if let Some(address) = self.address {
            let annotations = metadata.annotations.get_or_insert_default();
            let ours = format!("{} {address}", self.identity);
            annotations.insert(names::LEADER_ADDRESS_ANNOTATION.to_owned(), ours);
        }
        let ours = Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                acquire_time: Some(MicroTime(now)),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(spec.lease_transitions.unwrap_or(0).saturating_add(1)),
                ..spec.clone()
            }),
        };
        let params = PostParams::default();
        let lease = match found {
            Some(_) => call(self.api.replace(names::LEASE, &params, &ours)).await?,
            None => call(self.api.create(&params, &ours)).await?,
        };
        *self.previous_leader_until.lock() = spec.renew_time.map(|time| time.0);
        self.leader.send_replace(None);
        self.set_leader(now);
        tracing::info!(identity = self.identity, "lease acquired");
        let until = started + LEADERSHIP_DURATION;
        Ok(HeldLease { lease, until })
    }

    /// The time for which it counted on the lease has passed, even if timers stood still meanwhile: the machine was
    /// suspended, nothing was watched, and another operator may lead.
    fn has_ended(&self) -> bool {
        matches!(*self.leadership.borrow(), Leadership::Leader { until } if self.clock.now() >= until)
    }

    /// Renews until that fails for too long, or another operator holds the Lease.
    async fn lead(&self, held: HeldLease) {
        let HeldLease {
            mut lease,
            mut until,
        } = held;
        let mut next = Instant::now() + RENEW_INTERVAL;
        loop {
            sleep_until(next.min(until)).await;
            if Instant::now() >= until || self.has_ended() {
                break;
            }
            let (before, started) = (self.clock.now(), Instant::now());
            match timeout_at(until, self.renew(&lease, before)).await {
                Ok(Ok(renewed)) => {
                    lease = renewed;
                    until = started + LEADERSHIP_DURATION;
                    next = started + RENEW_INTERVAL;
                    self.set_leader(before);
                }
                Ok(Err(LeaseError::Conflict)) | Err(_) => break,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "lease renewal failed; retrying");
                    next = Instant::now() + RETRY_INTERVAL;
                }
            }
        }
        self.leadership.send_replace(Leadership::Follower);
        tracing::warn!(identity = self.identity, "lease lost");
    }

    /// Renews the Lease as last written; if it was changed since, as it is now, as long as we hold it.
    async fn renew(&self, lease: &Lease, now: Timestamp) -> Result<Lease, LeaseError> {
        match self.renew_version(lease.clone(), now).await {
            Err(LeaseError::Conflict) => {}
            other => return other,
        }
        let current = self.still_ours().await?.ok_or(LeaseError::Conflict)?;
        match self.renew_version(current, now).await {
            // Ours a moment ago: not lost, only busy.
            Err(LeaseError::Conflict) => Err(LeaseError::Busy),
            other => other,
        }
    }

    async fn renew_version(&self, mut lease: Lease, now: Timestamp) -> Result<Lease, LeaseError> {
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(now));
        spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
        let params = PostParams::default();
        call(self.api.replace(names::LEASE, &params, &lease)).await
    }

    /// The Lease as it is now, if we hold it: a label may have been added, or an answer to us was lost.
    async fn still_ours(&self) -> Result<Option<Lease>, LeaseError> {
        let found = call(self.api.get_opt(names::LEASE)).await?;
        Ok(found.filter(|lease| {
            let spec = lease.spec.as_ref();
            spec.and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.identity)
        }))
    }

    fn set_leader(&self, before: Timestamp) {
        let lead = jiff::SignedDuration::try_from(LEADERSHIP_DURATION).unwrap_or_default();
        let until = before.checked_add(lead).unwrap_or(before);
        self.leadership.send_replace(Leadership::Leader { until });
    }

    /// Leaves the Lease without a holder. If that fails, the others wait until it expires.
    async fn release(&self) {
        for _ in 0..3 {
            match self.release_once().await {
                Ok(()) => return,
                Err(LeaseError::Conflict) => {}
                Err(error) => {
                    tracing::warn!(%error, "lease release failed; it expires by itself");
                    return;
                }
            }
        }
    }

    async fn release_once(&self) -> Result<(), LeaseError> {
        let Some(mut lease) = self.still_ours().await? else {
            return Ok(());
        };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = None;
        spec.renew_time = Some(MicroTime(self.clock.now()));
        spec.lease_duration_seconds = Some(1);
        call(
            self.api
                .replace(names::LEASE, &PostParams::default(), &lease),
        )
        .await?;
        Ok(())
    }
}

/// How waiting for the Lease ended.
enum Waited {
    /// It is free: released, or expired.
    Free,
    /// It is gone.
    Deleted,
    /// Nothing happened; watch again.
    WatchEnded,
}

/// Our Lease, and until when we count on it.
struct HeldLease {
    lease: Lease,
    until: Instant,
}

/// Half to whole, so that candidates do not try in step.
async fn pause() {
    sleep(RETRY_INTERVAL.mul_f64(rand::random_range(0.5..1.0))).await;
}
