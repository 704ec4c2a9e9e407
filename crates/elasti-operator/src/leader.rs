//! Who leads among the operators: one Lease, renewed well before it ends, given back on a clean end.
//! Never writes anything but the Lease, and never says "leader" for longer than the Lease surely lasts.

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

/// Nobody else takes the Lease before it has seen it unchanged for this long.
const LEASE: Duration = Duration::from_secs(15);
/// How long a renewal counts for us, from before it was sent. The rest of the Lease is for a write that is still on
/// its way, and for clocks that run at different speeds.
const LEAD: Duration = Duration::from_secs(10);
/// 12 writes a minute. Two attempts fit before [`LEAD`] is over.
const RENEW_EVERY: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const PAUSE_AFTER_FAULT: Duration = Duration::from_millis(500);
/// Somebody else's Lease may ask for more patience than ours, but not for ever.
const LONGEST_FOREIGN_LEASE: Duration = Duration::from_secs(60);
/// While someone leads, the Lease changes every few seconds, so a watch that is silent has ended long before this.
const WATCH_SECONDS: u32 = 290;

/// Why a call for the Lease came to nothing.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    /// Somebody wrote it in between.
    #[error("someone else wrote the Lease")]
    Overtaken,
    /// Somebody keeps writing it, and we still hold it.
    #[error("the Lease is being written by someone else")]
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
            kube::Error::Api(status) if status.code == 409 => Self::Overtaken,
            other => Self::Refused(other),
        }
    }
}

/// Waits for a call, but not for ever.
async fn patient<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, LeaseError> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(LeaseError::NoAnswer),
    }
}

/// This process's seat among the operators.
#[derive(Debug)]
pub struct LeaderElection {
    leadership: watch::Sender<Leadership>,
    before: Arc<Mutex<Option<Timestamp>>>,
    candidate: Option<Candidate>,
    task: Option<JoinHandle<()>>,
}

impl LeaderElection {
    /// Stands for election in `namespace` until the seat is dropped or released.
    #[must_use]
    pub fn stand(client: Client, namespace: &str, clock: Clock) -> Self {
        let candidate = Candidate {
            api: Api::namespaced(client, namespace),
            identity: identity(),
            clock,
            leadership: watch::Sender::new(Leadership::Follower),
            before: Arc::default(),
        };
        Self {
            leadership: candidate.leadership.clone(),
            before: candidate.before.clone(),
            task: Some(tokio::spawn(candidate.clone().run())),
            candidate: Some(candidate),
        }
    }

    /// Leads without asking anyone: for an operator that runs alone, without `--leader-elect`.
    #[must_use]
    pub fn alone() -> Self {
        let until = Timestamp::MAX;
        Self {
            leadership: watch::Sender::new(Leadership::Leader { until }),
            before: Arc::default(),
            candidate: None,
            task: None,
        }
    }

    /// Whether this process leads, and until when; it moves on with each renewal.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// The last sign of life of whoever led before, as found in the Lease when this process took it.
    #[must_use]
    pub fn watched_before_until(&self) -> Option<Timestamp> {
        *self.before.lock()
    }

    /// Stops leading and gives the Lease back, so that another leads at once. Call it when no write is on its way.
    pub async fn release(mut self) {
        self.leadership.send_replace(Leadership::Follower);
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        // The aborted task may have said "leader" once more.
        self.leadership.send_replace(Leadership::Follower);
        if let Some(candidate) = self.candidate.take() {
            candidate.give_back().await;
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

/// The Lease as last seen, and since when it has been so.
#[derive(Clone, Debug)]
struct Sight {
    lease: Lease,
    since: Instant,
}

impl Sight {
    fn of(lease: Lease) -> Self {
        Self {
            lease,
            since: Instant::now(),
        }
    }

    /// Another look; only the holder's own signs of life count as a change.
    fn look(&mut self, lease: Lease) {
        let sign = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            (spec.holder_identity, spec.renew_time)
        };
        if sign(&lease) != sign(&self.lease) {
            self.since = Instant::now();
        }
        self.lease = lease;
    }

    /// When it is free, judged by our own clock only: clocks of two machines are never compared.
    fn free_at(&self) -> Instant {
        let spec = self.lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        if holder.unwrap_or_default().is_empty() {
            return self.since;
        }
        let asked = spec
            .and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok())
            .map_or(LEASE, Duration::from_secs);
        self.since + asked.min(LONGEST_FOREIGN_LEASE)
    }
}

/// One that stands for election.
#[derive(Clone, Debug)]
struct Candidate {
    api: Api<Lease>,
    identity: String,
    clock: Clock,
    leadership: watch::Sender<Leadership>,
    before: Arc<Mutex<Option<Timestamp>>>,
}

impl Candidate {
    async fn run(self) {
        // Outlives failed calls: a server that flaps must not keep a dead leader's Lease alive.
        let mut sight = None;
        loop {
            match self.stand(&mut sight).await {
                Ok(held) => {
                    sight = None;
                    self.lead(held).await;
                }
                Err(LeaseError::Overtaken) => pause().await,
                Err(error) => {
                    tracing::warn!(%error, "the Lease cannot be taken; trying again");
                    pause().await;
                }
            }
        }
    }

    /// Waits until the Lease is free, and takes it.
    async fn stand(&self, sight: &mut Option<Sight>) -> Result<Held, LeaseError> {
        let Some(lease) = patient(self.api.get_opt(names::LEASE)).await? else {
            *sight = None;
            return self.take(None).await;
        };
        let sight = match sight {
            Some(sight) => {
                sight.look(lease);
                sight
            }
            None => sight.insert(Sight::of(lease)),
        };
        loop {
            match self.follow(sight).await? {
                Followed::Free => return self.take(Some(sight.lease.clone())).await,
                Followed::Deleted => return self.take(None).await,
                Followed::WatchEnded => {}
            }
        }
    }

    /// Follows the Lease without asking again and again.
    async fn follow(&self, sight: &mut Sight) -> Result<Followed, LeaseError> {
        if sight.free_at() <= Instant::now() {
            return Ok(Followed::Free);
        }
        let params = WatchParams::default()
            .fields(&format!("metadata.name={}", names::LEASE))
            .timeout(WATCH_SECONDS);
        let version = sight.lease.metadata.resource_version.clone();
        let events = patient(self.api.watch(&params, version.as_deref().unwrap_or("0"))).await?;
        let mut events = events.boxed();
        loop {
            let event = tokio::select! {
                event = events.try_next() => event?,
                () = sleep_until(sight.free_at()) => return Ok(Followed::Free),
            };
            match event {
                Some(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => sight.look(lease),
                Some(WatchEvent::Deleted(_)) => return Ok(Followed::Deleted),
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(status)) => {
                    return Err(LeaseError::Refused(kube::Error::Api(status)));
                }
                None => return Ok(Followed::WatchEnded),
            }
        }
    }

    /// Takes a Lease that is free; if someone was faster, Kubernetes refuses.
    async fn take(&self, found: Option<Lease>) -> Result<Held, LeaseError> {
        let (now, started) = (self.clock.now(), Instant::now());
        let spec = found
            .as_ref()
            .and_then(|lease| lease.spec.clone())
            .unwrap_or_default();
        let ours = Lease {
            metadata: match &found {
                Some(lease) => lease.metadata.clone(),
                None => ObjectMeta {
                    name: Some(names::LEASE.to_owned()),
                    ..ObjectMeta::default()
                },
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
                acquire_time: Some(MicroTime(now)),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(spec.lease_transitions.unwrap_or(0).saturating_add(1)),
                ..spec.clone()
            }),
        };
        let params = PostParams::default();
        let lease = match found {
            Some(_) => patient(self.api.replace(names::LEASE, &params, &ours)).await?,
            None => patient(self.api.create(&params, &ours)).await?,
        };
        *self.before.lock() = spec.renew_time.map(|time| time.0);
        self.says_leader(now);
        tracing::info!(identity = self.identity, "this operator leads");
        let until = started + LEAD;
        Ok(Held { lease, until })
    }

    /// Renews until that fails for too long, or someone else holds the Lease.
    async fn lead(&self, held: Held) {
        let Held {
            mut lease,
            mut until,
        } = held;
        let mut next = Instant::now() + RENEW_EVERY;
        loop {
            sleep_until(next.min(until)).await;
            if Instant::now() >= until {
                break;
            }
            let (before, started) = (self.clock.now(), Instant::now());
            match timeout_at(until, self.renew(&lease, before)).await {
                Ok(Ok(renewed)) => {
                    lease = renewed;
                    until = started + LEAD;
                    next = started + RENEW_EVERY;
                    self.says_leader(before);
                }
                Ok(Err(LeaseError::Overtaken)) | Err(_) => break,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the Lease cannot be renewed; trying again");
                    next = Instant::now() + PAUSE_AFTER_FAULT;
                }
            }
        }
        self.leadership.send_replace(Leadership::Follower);
        tracing::warn!(identity = self.identity, "this operator no longer leads");
    }

    /// Renews the Lease as we know it; where that is old, as it is now, as long as we hold it.
    async fn renew(&self, lease: &Lease, now: Timestamp) -> Result<Lease, LeaseError> {
        match self.renew_known(lease.clone(), now).await {
            Err(LeaseError::Overtaken) => {}
            other => return other,
        }
        let current = self.still_ours().await?.ok_or(LeaseError::Overtaken)?;
        match self.renew_known(current, now).await {
            // Still ours a moment ago: not lost, only busy.
            Err(LeaseError::Overtaken) => Err(LeaseError::Busy),
            other => other,
        }
    }

    async fn renew_known(&self, mut lease: Lease, now: Timestamp) -> Result<Lease, LeaseError> {
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(now));
        spec.lease_duration_seconds = i32::try_from(LEASE.as_secs()).ok();
        let params = PostParams::default();
        patient(self.api.replace(names::LEASE, &params, &lease)).await
    }

    /// The Lease as it is now, if we hold it: a label may have been added, or an answer of ours was lost.
    async fn still_ours(&self) -> Result<Option<Lease>, LeaseError> {
        let found = patient(self.api.get_opt(names::LEASE)).await?;
        Ok(found.filter(|lease| {
            let spec = lease.spec.as_ref();
            spec.and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.identity)
        }))
    }

    fn says_leader(&self, before: Timestamp) {
        let lead = jiff::SignedDuration::try_from(LEAD).unwrap_or_default();
        let until = before.checked_add(lead).unwrap_or(before);
        self.leadership.send_replace(Leadership::Leader { until });
    }

    /// Leaves the Lease without a holder. If it cannot be, the others wait for its end.
    async fn give_back(&self) {
        for _ in 0..3 {
            match self.give_back_once().await {
                Ok(()) => return,
                Err(LeaseError::Overtaken) => {}
                Err(error) => {
                    tracing::warn!(%error, "the Lease could not be given back; it ends by itself");
                    return;
                }
            }
        }
    }

    async fn give_back_once(&self) -> Result<(), LeaseError> {
        let Some(mut lease) = self.still_ours().await? else {
            return Ok(());
        };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = None;
        spec.renew_time = Some(MicroTime(self.clock.now()));
        spec.lease_duration_seconds = Some(1);
        patient(
            self.api
                .replace(names::LEASE, &PostParams::default(), &lease),
        )
        .await?;
        Ok(())
    }
}

/// How following the Lease ended.
enum Followed {
    /// It is free, by its own word or by its age.
    Free,
    /// It is gone.
    Deleted,
    /// Nothing happened; go on.
    WatchEnded,
}

/// The Lease in our hands, and until when we count on it.
struct Held {
    lease: Lease,
    until: Instant,
}

/// Half to whole, so that candidates do not try in step.
async fn pause() {
    sleep(PAUSE_AFTER_FAULT.mul_f64(rand::random_range(0.5..1.0))).await;
}
