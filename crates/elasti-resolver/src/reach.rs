//! Reaches a pod for a request or a connection, HTTP or TCP: chooses one, tries it, and holds while none is ready.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::WakeClient;
use elasti_core::ports::ServiceKey;
use elasti_core::waiting_room::Ticket;
use futures::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until};

use crate::answer::Failure;
use crate::clock::to_std;
use crate::ended_hold::EndedHold;
use crate::hold::{Asks, Hold, Released};
use crate::pod::{Pod, choose};
use crate::pod_lookups::PodLookups;
use crate::protocol::CountedAs;
use crate::table::{OpenGuard, Port, PortKey, RouteTable, Service, ServiceStats};
use crate::wake::WakeTasks;

/// What every pod was reached for and none could take is tried again after this long.
pub(crate) const NOT_NOW_BACKOFF: Duration = Duration::from_millis(200);

/// Where a request or a connection is meant to go.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) key: Arc<ServiceKey>,
    pub(crate) listen_port: u16,
    /// Of the service when it was found; for counting only.
    pub(crate) stats: Arc<ServiceStats>,
}

impl Destination {
    pub(crate) fn new(service: &Service, listen_port: u16) -> Self {
        Self {
            key: service.key.clone(),
            listen_port,
            stats: service.stats.clone(),
        }
    }
}

/// What is brought to a pod, and how one pod is tried.
pub(crate) trait Attempt: Send + Sync {
    /// Consumed by a try, and given back by one that did not reach its pod.
    type Message: Send;
    type Reached: Send;

    /// Bytes in memory while it waits.
    fn held_bytes(&self) -> u64;

    fn counted_as(&self) -> CountedAs;

    /// Who it is from.
    fn client(&self, message: &Self::Message) -> WakeClient;

    /// It was held, and is not any more.
    fn hold_ended(&self, _: &ServiceKey, _: &EndedHold, _: &mut Self::Message) {}

    /// Says `written` when a pod is connected and gets the message.
    fn try_pod(
        &mut self,
        service: &Service,
        pod: &Pod,
        message: Self::Message,
        written: impl Fn() + Send + Sync,
    ) -> impl Future<Output = Result<Self::Reached, AttemptError<Self::Message>>> + Send;

    /// A pod was reached: by default, its answer has begun.
    fn reached(released: Released) {
        released.answered();
    }

    /// Ends when a pod that could not take it yet may be tried again.
    fn may_try_again(&self) -> impl Future<Output = ()> + Send {
        sleep(NOT_NOW_BACKOFF)
    }

    /// By when the client itself gives up.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Ends when the client has disconnected.
    fn client_disconnected(&self) -> impl Future<Output = ()> + Send;
}

/// Why one try failed.
#[derive(Debug)]
pub(crate) enum AttemptError<M> {
    /// The pod has seen nothing of it: another one may have it.
    Unsent(M),
    /// The same, and the pod is there: it only cannot take this one yet, which is no reason for others to wait.
    NotNow(M),
    /// No other pod may be tried.
    Failed(Failure),
}

/// How the wait of a connection ended, for the first request on it.
#[derive(Debug, Default)]
pub(crate) enum HoldOutcome {
    /// It did not have to wait.
    #[default]
    NotHeld,
    Released(Released, EndedHold),
    /// With the hold, unless that was told already.
    Refused(Failure, Option<EndedHold>),
}

impl HoldOutcome {
    pub(crate) fn into_released(self) -> Result<Option<Released>, Failure> {
        match self {
            Self::NotHeld => Ok(None),
            Self::Released(released, _) => Ok(Some(released)),
            Self::Refused(failure, _) => Err(failure),
        }
    }

    /// The hold that ended so.
    pub(crate) fn ended(&self) -> Option<EndedHold> {
        match self {
            Self::NotHeld => None,
            Self::Released(_, ended) => Some(*ended),
            Self::Refused(_, ended) => *ended,
        }
    }
}

/// Brings requests to pods, and holds them while none is ready.
#[derive(Clone, Debug)]
pub(crate) struct Dispatcher {
    pub(crate) table: RouteTable,
    pub(crate) hold: Arc<Hold>,
    pub(crate) wakes: Arc<WakeTasks>,
    pub(crate) lookups: PodLookups,
}

impl Dispatcher {
    pub(crate) fn service(&self, key: &ServiceKey) -> Result<Arc<Service>, Failure> {
        self.table.service(key).ok_or(Failure::NotManaged)
    }

    /// Reaches a pod. What was released already keeps its deadline and does not queue again.
    pub(crate) async fn reach<A: Attempt>(
        &self,
        destination: &Destination,
        mut service: Arc<Service>,
        mut released: Option<Released>,
        mut attempt: A,
        mut message: A::Message,
    ) -> Result<A::Reached, Failure> {
        let (deadline, too_late) = deadline(&service, released.as_ref(), &attempt);
        let or_too_late = |failure: Failure| match failure {
            Failure::Deadline => too_late,
            failure => failure,
        };
        let (mut tried, mut unreachable) = (BTreeSet::new(), false);
        loop {
            // While a pod was tried, which may take seconds, it may have disconnected, or its time may have passed.
            if !tried.is_empty() && attempt.client_disconnected().now_or_never().is_some() {
                return Err(Failure::ClientDisconnected);
            }
            if !tried.is_empty() && Instant::now() >= deadline {
                // A client that gives up early says nothing of the pods.
                if let Some(released) = released.filter(|_| too_late == Failure::Deadline) {
                    released.failed();
                }
                return Err(too_late);
            }
            let port = service.port(destination.listen_port);
            let port = port.ok_or(Failure::NotManaged)?;
            let may_go = released.is_some() || !port.has_waiters();
            let written = || {
                if let Some(released) = &released {
                    released.written();
                }
            };
            // Every pod was reached, and has no room.
            let full = may_go && !tried.is_empty() && !unreachable;
            match choose(&port.pods, &tried).filter(|_| may_go) {
                Some(pod) => {
                    released.iter().for_each(Released::begun);
                    let tried_pod = self.try_pod(&mut attempt, &service, pod, message, written);
                    match tried_pod.await {
                        Ok(reached) => {
                            released.into_iter().for_each(A::reached);
                            return Ok(reached);
                        }
                        Err(AttemptError::Failed(failure)) => return Err(failure),
                        Err(AttemptError::Unsent(unsent)) => {
                            (message, unreachable) = (unsent, true)
                        }
                        Err(AttemptError::NotNow(unsent)) => message = unsent,
                    }
                    tried.insert(pod.backend.pod.clone());
                }
                None if full && let Some(_place) = self.hold.stand_aside() => {
                    released.iter().for_each(Released::stands_aside);
                    let waited = wait_for_pods(&service, &attempt, deadline).await;
                    waited.map_err(or_too_late)?;
                    tried.clear();
                }
                None => {
                    let before = released.take().map(Released::failed);
                    // Without the pause it would be tried again at once, for as long as the pods are full.
                    if std::mem::take(&mut unreachable) || full {
                        let port = PortKey::new(&service, destination.listen_port);
                        self.hold.pause_releases(port);
                    }
                    tried.clear();
                    let turn = (destination.listen_port, before);
                    let held = self.hold_attempt(&service, turn, deadline, &attempt, &mut message);
                    released = Some(held.await.map_err(or_too_late)?);
                }
            }
            service = self.service(&destination.key)?;
        }
    }

    /// Tries a pod, if it has the address that is known of it.
    async fn try_pod<A: Attempt>(
        &self,
        attempt: &mut A,
        service: &Service,
        pod: &Pod,
        message: A::Message,
        written: impl Fn() + Send + Sync,
    ) -> Result<A::Reached, AttemptError<A::Message>> {
        // While that is asked, the leader must not see the service idle.
        let open = OpenGuard::new(&service.stats);
        let admitted = self.lookups.admit(&service.key, pod).await;
        drop(open);
        match admitted {
            true => attempt.try_pod(service, pod, message, written).await,
            false => Err(AttemptError::Unsent(message)),
        }
    }

    /// Holds a message, and reports the hold; `before` if it was held and released before.
    async fn hold_attempt<A: Attempt>(
        &self,
        service: &Service,
        (listen_port, before): (u16, Option<Ticket>),
        deadline: Instant,
        attempt: &A,
        message: &mut A::Message,
    ) -> Result<Released, Failure> {
        let since = Instant::now();
        let first = self.wakes.tells_clients && !service.has_waiters();
        let client = first.then(|| Box::new(attempt.client(message)));
        let asks = Asks {
            listen_port,
            bytes: attempt.held_bytes(),
            deadline,
            before,
        };
        let held = tokio::select! {
            held = self.hold(service, asks, client) => held,
            () = attempt.client_disconnected() => Err(Failure::ClientDisconnected),
        };
        let ended = EndedHold::now(since, held.as_ref().err().copied());
        self.hold_ended(&service.key, attempt.counted_as(), &ended);
        attempt.hold_ended(&service.key, &ended, message);
        held
    }

    pub(crate) fn hold_ended(&self, key: &ServiceKey, counted_as: CountedAs, ended: &EndedHold) {
        self.wakes.metrics.hold_ended(key, counted_as, ended);
    }

    /// Holds a request until a pod is ready, and makes sure that the service is being woken.
    pub(crate) async fn hold(
        &self,
        service: &Service,
        asks: Asks,
        client: Option<Box<WakeClient>>,
    ) -> Result<Released, Failure> {
        if service.refuses_when_down {
            return Err(Failure::Down);
        }
        let wait = self.hold.wait(service, asks, || {
            self.wakes.ensure_running(&service.key, client);
            // An obstacle known before it came: the others were rejected when it became known.
            service.obstacle.filter(|_| service.ready_pods() == 0)
        });
        wait.await.map_err(Failure::from)
    }

    /// Wakes a service for clients that do not wait on their connection. One ticket in its waiting room stands for all
    /// of them, so that the wake goes on as long as for a held request.
    pub(crate) fn wake_without_waiting(
        &self,
        service: &Arc<Service>,
        listen_port: u16,
        client: Option<Box<WakeClient>>,
    ) {
        if service.port(listen_port).is_none_or(Port::has_waiters) {
            return;
        }
        let (dispatcher, service) = (self.clone(), service.clone());
        tokio::spawn(async move {
            let deadline = Instant::now() + to_std(service.room.timeout);
            // The waiting page asks again by itself, so the outcome interests no client.
            let asks = Asks::unread(listen_port, deadline);
            let _ = dispatcher.hold(&service, asks, client).await;
        });
    }
}

/// By when a message must have reached a pod, and what its client is told then.
fn deadline<A: Attempt>(
    service: &Service,
    released: Option<&Released>,
    attempt: &A,
) -> (Instant, Failure) {
    let deadline = match released {
        Some(released) => released.deadline,
        None => Instant::now() + to_std(service.room.timeout),
    };
    match attempt.deadline().filter(|own| *own < deadline) {
        Some(own) => (own, Failure::GrpcTimeout),
        None => (deadline, Failure::Deadline),
    }
}

/// Waits until pods that could not take a message yet may be tried again. It counts as open: the leader must not see the
/// service idle meanwhile.
async fn wait_for_pods<A: Attempt>(
    service: &Service,
    attempt: &A,
    deadline: Instant,
) -> Result<(), Failure> {
    let _open = OpenGuard::new(&service.stats);
    tokio::select! {
        () = attempt.may_try_again() => Ok(()),
        () = attempt.client_disconnected() => Err(Failure::ClientDisconnected),
        () = sleep_until(deadline) => Err(Failure::Deadline),
    }
}
