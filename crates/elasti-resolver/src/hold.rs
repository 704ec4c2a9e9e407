//! Holds requests until a pod is ready, their deadline passes or their client leaves; lets them go in arrival order.
//! Never keeps a connection or a byte: whoever waits keeps its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use elasti_api::Reason;
use elasti_core::ports::ServiceKey;
use elasti_core::waiting_room::{
    Admission, Limits, Refusal, ReleasePace, RoomLimits, Ticket, WaitingRooms,
};
use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::table::{Seen, Service, Table};

/// After a pod that should be ready could not be reached, nobody is let go for this long.
const REST: Duration = Duration::from_millis(200);

/// Why a request was not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotHeld {
    /// A bound was hit.
    Refused(Refusal),
    /// It waited as long as it may.
    Deadline,
    /// The pods cannot start.
    Obstacle(Reason),
    /// Nobody manages the service any more.
    Deleted,
}

type Verdict = Result<Released, NotHeld>;

/// How fast one service's waiters leave.
#[derive(Debug, Default)]
struct Gate {
    pace: ReleasePace,
    in_flight: usize,
    rests: bool,
}

/// Where one waiter hears its verdict.
#[derive(Debug)]
struct Waiter {
    verdict: oneshot::Sender<Verdict>,
    deadline: Instant,
}

#[derive(Debug)]
struct State {
    rooms: WaitingRooms,
    waiters: HashMap<Ticket, Waiter>,
    /// Only services that someone waits for, or whose released requests are under way.
    gates: HashMap<ServiceKey, Gate>,
}

/// All waiting rooms of one resolver.
#[derive(Debug)]
pub(crate) struct Hold {
    clock: Clock,
    table: Arc<ArcSwap<Table>>,
    state: Mutex<State>,
    urgent: watch::Sender<bool>,
}

/// A request that was let go; it counts as under way for as long as this lives. It travels through the waiter's
/// verdict itself, so that a waiter that leaves in the very moment of its release leaks nothing.
#[derive(Debug)]
pub(crate) struct Released {
    hold: Arc<Hold>,
    key: ServiceKey,
    /// By when it must have an answer or go: time spent before a failed attempt counts too.
    pub(crate) deadline: Instant,
    /// Whether a pod took it; unknown where the client left first.
    answered: Option<bool>,
}

/// A place in a room; dropped, the place is free.
struct Place<'a> {
    hold: &'a Hold,
    ticket: Ticket,
    seen: &'a Seen,
    key: &'a ServiceKey,
}

impl Hold {
    pub(crate) fn new(limits: &Limits, clock: Clock, table: Arc<ArcSwap<Table>>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            table,
            state: Mutex::new(State {
                rooms: WaitingRooms::new(limits),
                waiters: HashMap::new(),
                gates: HashMap::new(),
            }),
            urgent: watch::Sender::new(false),
        })
    }

    /// True while anything is held, for watches that must notice silence sooner then.
    pub(crate) fn urgent(&self) -> watch::Receiver<bool> {
        self.urgent.subscribe()
    }

    pub(crate) fn held(&self, key: &ServiceKey) -> usize {
        self.state.lock().rooms.held(key)
    }

    pub(crate) fn held_total(&self) -> usize {
        self.state.lock().rooms.held_total()
    }

    /// Changes who is let in; whoever waits stays.
    pub(crate) fn set_admission(&self, admission: Admission) {
        self.state.lock().rooms.set_admission(admission);
    }

    /// Waits for a pod, with this many bytes in memory, at most until `deadline`. Dropping the future gives the place
    /// up. `waits` is called once the place is taken, before the wait; it may know why waiting does not help.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        service: &Service,
        bytes: u64,
        deadline: Instant,
        waits: impl FnOnce() -> Option<Reason>,
    ) -> Result<Released, NotHeld> {
        let Service {
            key, seen, room, ..
        } = service;
        let left = deadline.saturating_duration_since(Instant::now());
        let limits = RoomLimits {
            timeout: SignedDuration::try_from(left).unwrap_or(room.timeout),
            ..*room
        };
        let (api_client, verdict) = oneshot::channel();
        let waiter = Waiter {
            verdict: api_client,
            deadline,
        };
        let _place = self.admit(key, seen, &limits, bytes, waiter)?;
        if let Some(reason) = waits() {
            return Err(NotHeld::Obstacle(reason));
        }
        self.advance(key);
        let heard = timeout_at(deadline, verdict).await;
        match heard {
            Ok(Ok(Ok(released))) => Ok(released),
            Ok(Ok(Err(why))) => Err(why),
            // A verdict that is never told belongs to a waiter whose time is up.
            Ok(Err(_)) | Err(_) => Err(NotHeld::Deadline),
        }
    }

    fn admit<'a>(
        &'a self,
        key: &'a ServiceKey,
        seen: &'a Seen,
        limits: &RoomLimits,
        bytes: u64,
        waiter: Waiter,
    ) -> Result<Place<'a>, NotHeld> {
        let mut state = self.state.lock();
        let ticket = state
            .rooms
            .admit(key, limits, bytes, self.clock.now())
            .map_err(NotHeld::Refused)?;
        state.waiters.insert(ticket, waiter);
        if !state.gates.contains_key(key) {
            state.gates.insert(key.clone(), Gate::default());
        }
        if seen.held.fetch_add(1, Ordering::Relaxed) == 0 {
            seen.first_answer_millis.store(0, Ordering::Relaxed);
        }
        self.urgent
            .send_if_modified(|urgent| !std::mem::replace(urgent, true));
        Ok(Place {
            hold: self,
            ticket,
            seen,
            key,
        })
    }

    /// Lets go as many waiters of a service as its ready pods can take now. The count of pods is read under the lock,
    /// so that whoever comes last has seen the newest table.
    pub(crate) fn advance(self: &Arc<Self>, key: &ServiceKey) {
        let mut unsent = Vec::new();
        {
            let mut state = self.state.lock();
            let State {
                rooms,
                waiters,
                gates,
            } = &mut *state;
            let Some(gate) = gates.get_mut(key) else {
                return;
            };
            if gate.rests {
                return;
            }
            let ready = self.table.load().ready_pods(key);
            let allowance = gate.pace.allowance(ready, gate.in_flight);
            for ticket in rooms.release(key, allowance) {
                let Some(waiter) = waiters.remove(&ticket) else {
                    continue;
                };
                gate.in_flight = gate.in_flight.saturating_add(1);
                let released = Released {
                    hold: self.clone(),
                    key: key.clone(),
                    deadline: waiter.deadline,
                    answered: None,
                };
                unsent.extend(waiter.verdict.send(Ok(released)).err());
            }
            close_gate(&mut state, key);
        }
        // Whoever left in this moment makes room for the next; that takes the lock again.
        drop(unsent);
    }

    /// Tells everyone who waits for a service that waiting does not help.
    pub(crate) fn turn_away(&self, key: &ServiceKey, why: NotHeld) {
        let mut state = self.state.lock();
        let waiters = state.rooms.release(key, usize::MAX);
        for waiter in waiters
            .iter()
            .filter_map(|ticket| state.waiters.remove(ticket))
        {
            let _ = waiter.verdict.send(Err(why));
        }
    }

    /// A ready pod could not be reached: nobody goes there for a moment.
    pub(crate) fn rest(self: &Arc<Self>, key: &ServiceKey) {
        let mut state = self.state.lock();
        let gate = state.gates.entry(key.clone()).or_default();
        if std::mem::replace(&mut gate.rests, true) {
            return;
        }
        let (hold, key) = (self.clone(), key.clone());
        tokio::spawn(async move {
            tokio::time::sleep(REST).await;
            if let Some(gate) = hold.state.lock().gates.get_mut(&key) {
                gate.rests = false;
            }
            hold.advance(&key);
        });
    }

    fn ended(self: &Arc<Self>, key: &ServiceKey, answered: Option<bool>) {
        if answered == Some(true)
            && let Some(service) = self.table.load().services.get(key)
        {
            // Only the first since they began to wait: the others find it set.
            let _ = service.seen.first_answer_millis.compare_exchange(
                0,
                self.clock.millis(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        {
            let mut state = self.state.lock();
            if let Some(gate) = state.gates.get_mut(key) {
                gate.in_flight = gate.in_flight.saturating_sub(1);
                if let Some(ok) = answered {
                    gate.pace.answered(self.table.load().ready_pods(key), ok);
                }
            }
        }
        self.advance(key);
    }
}

/// A service that nobody waits for needs no gate; its next wake starts at the first pace again.
fn close_gate(state: &mut State, key: &ServiceKey) {
    let idle = |gate: &Gate| gate.in_flight == 0 && !gate.rests;
    if state.rooms.held(key) == 0 && state.gates.get(key).is_some_and(idle) {
        state.gates.remove(key);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.hold.state.lock();
        state.rooms.leave(self.ticket);
        state.waiters.remove(&self.ticket);
        close_gate(&mut state, self.key);
        self.seen.held.fetch_sub(1, Ordering::Relaxed);
        if state.rooms.held_total() == 0 {
            self.hold
                .urgent
                .send_if_modified(|urgent| std::mem::replace(urgent, false));
        }
    }
}

impl Released {
    /// A pod has taken the request.
    pub(crate) fn answered(mut self) {
        self.answered = Some(true);
    }

    /// No pod could be reached.
    pub(crate) fn failed(mut self) {
        self.answered = Some(false);
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.hold.ended(&self.key, self.answered);
    }
}
