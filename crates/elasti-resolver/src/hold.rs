//! Holds requests until a pod is ready, their deadline passes or their client disconnects; releases them in arrival
//! order. Connections and bytes stay with the caller: a held request costs a ticket here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use elasti_api::Reason;
use elasti_core::ports::ServiceKey;
use elasti_core::waiting_room::{Admission, Limits, Refusal, ReleasePace, Ticket, WaitingRooms};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::clock::Clock;
use crate::table::{PortKey, RouteTable, Service, ServiceStats};

/// After a pod that should be ready could not be reached, nothing is released for this long.
const UNREACHABLE_BACKOFF: Duration = Duration::from_millis(200);

/// Why a held request was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldError {
    /// A bound was hit.
    Refused(Refusal),
    /// It waited as long as it may.
    Deadline,
    /// The pods cannot start.
    Obstacle(Reason),
    /// The service, or its port, is not managed any more.
    Deleted,
}

/// How a request is to be held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    pub(crate) listen_port: u16,
    /// Of it in memory.
    pub(crate) bytes: u64,
    pub(crate) deadline: Instant,
    /// It was released, and could not be delivered to a pod: it keeps its admission and its turn.
    pub(crate) before: Option<Ticket>,
}

impl Asks {
    /// A connection of which nothing was read.
    pub(crate) fn unread(listen_port: u16, deadline: Instant) -> Self {
        Self {
            listen_port,
            bytes: 0,
            deadline,
            before: None,
        }
    }
}

type Verdict = Result<Released, HoldError>;

/// How fast the waiters for one port are released.
#[derive(Debug, Default)]
struct Gate {
    pace: ReleasePace,
    paused: bool,
    /// A task follows the pace, which also grows by time.
    followed: bool,
}

/// One held request.
#[derive(Debug)]
struct Waiter {
    verdict: oneshot::Sender<Verdict>,
    deadline: Instant,
}

#[derive(Debug)]
struct State {
    rooms: WaitingRooms,
    waiters: HashMap<Ticket, Waiter>,
    /// Only ports with held requests, or with released ones in flight.
    gates: HashMap<PortKey, Gate>,
}

/// Messages that wait for room at pods that were reached, outside of the waiting rooms: 512 x 128 KiB = 64 MiB.
const MAX_ASIDE: usize = 512;

/// All waiting rooms of one resolver.
#[derive(Debug)]
pub(crate) struct Hold {
    aside: Semaphore,
    clock: Clock,
    table: RouteTable,
    state: Mutex<State>,
    urgent: watch::Sender<bool>,
}

/// How a released request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A pod has answered.
    Answered,
    /// A pod is connected, and no answer will show how busy it is.
    Connected,
    /// No pod could be reached.
    Failed,
    /// Not known: the client disconnected first.
    Unknown,
}

/// A released request; it takes a slot until it is answered, or time has given the slot back. The verdict itself carries it, so that a client
/// that disconnects in the very moment of its release leaks nothing.
#[derive(Debug)]
pub(crate) struct Released {
    hold: Arc<Hold>,
    key: PortKey,
    ticket: Ticket,
    /// By when it must be answered or refused: time spent before a failed attempt counts too.
    pub(crate) deadline: Instant,
    end: End,
}

/// Gives a ticket back on drop.
struct TicketGuard<'a> {
    hold: &'a Hold,
    ticket: Ticket,
    stats: &'a ServiceStats,
    /// Waiters for the port.
    waiters: &'a AtomicU32,
    key: PortKey,
}

impl Hold {
    pub(crate) fn new(limits: &Limits, clock: Clock, table: RouteTable) -> Arc<Self> {
        Arc::new(Self {
            aside: Semaphore::new(MAX_ASIDE),
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

    /// A place outside of the waiting rooms, where none is limited by its service; `None` if all are taken.
    pub(crate) fn stand_aside(&self) -> Option<SemaphorePermit<'_>> {
        self.aside.try_acquire().ok()
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

    /// Changes what is admitted; held requests stay.
    pub(crate) fn set_admission(&self, admission: Admission) {
        self.state.lock().rooms.set_admission(admission);
    }

    /// Waits for a pod behind one port, at most until the deadline. Dropping the future gives the ticket back. `admitted`
    /// is called once before the wait; it may return why waiting does not help.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        service: &Service,
        asks: Asks,
        admitted: impl FnOnce() -> Option<Reason>,
    ) -> Result<Released, HoldError> {
        let (sender, verdict) = oneshot::channel();
        let deadline = asks.deadline;
        let guard = self.admit(service, asks, sender)?;
        if let Some(reason) = admitted() {
            return Err(HoldError::Obstacle(reason));
        }
        self.advance(&guard.key);
        match timeout_at(deadline, verdict).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) | Err(_) => Err(HoldError::Deadline),
        }
    }

    fn admit<'a>(
        &'a self,
        service: &'a Service,
        asks: Asks,
        verdict: oneshot::Sender<Verdict>,
    ) -> Result<TicketGuard<'a>, HoldError> {
        let Asks {
            listen_port,
            bytes,
            deadline,
            before,
        } = asks;
        let waiter = Waiter { verdict, deadline };
        let port = service.port(listen_port).ok_or(HoldError::Deleted)?;
        let (stats, key) = (&service.stats, PortKey::new(service, listen_port));
        let mut state = self.state.lock();
        let rooms = &mut state.rooms;
        let admitted = match before {
            Some(ticket) => Ok(rooms.admit_again(ticket, &service.key, listen_port, bytes)),
            None => rooms.admit(&service.key, listen_port, &service.room, bytes),
        };
        let ticket = admitted.map_err(HoldError::Refused)?;
        state.waiters.insert(ticket, waiter);
        state.gates.entry(key.clone()).or_default();
        port.waiters.fetch_add(1, Ordering::Relaxed);
        if stats.held.fetch_add(1, Ordering::Relaxed) == 0 {
            stats.first_answer_millis.store(0, Ordering::Relaxed);
        }
        self.urgent
            .send_if_modified(|urgent| !std::mem::replace(urgent, true));
        Ok(TicketGuard {
            hold: self,
            ticket,
            stats,
            waiters: &port.waiters,
            key,
        })
    }

    /// The table has changed: releases what the ready pods of a service can take now, whatever port it waits for.
    pub(crate) fn advance_all(self: &Arc<Self>, service: &Arc<ServiceKey>) {
        let ports = self.state.lock().rooms.ports(service);
        for listen_port in ports {
            self.advance(&PortKey {
                service: service.clone(),
                listen_port,
            });
        }
    }

    /// Releases as many requests for a port as its usable pods can take now; refuses them if the port is gone. The pods
    /// are counted under the lock, so that the last caller has the newest table.
    fn advance(self: &Arc<Self>, key: &PortKey) {
        let mut unsent = Vec::new();
        {
            let mut state = self.state.lock();
            let Some(usable) = self.table.usable_pods(key) else {
                let gone = state
                    .rooms
                    .release(&key.service, key.listen_port, usize::MAX);
                state.refuse(&gone, HoldError::Deleted);
                return close_gate(&mut state, key);
            };
            let State {
                rooms,
                waiters,
                gates,
            } = &mut *state;
            let Some(gate) = gates.get_mut(key).filter(|gate| !gate.paused) else {
                return;
            };
            let allowance = gate.pace.allowance(usable);
            for ticket in rooms.release(&key.service, key.listen_port, allowance) {
                let Some(waiter) = waiters.remove(&ticket) else {
                    continue;
                };
                gate.pace.released(ticket, self.clock.now());
                let released = Released {
                    hold: self.clone(),
                    key: key.clone(),
                    ticket,
                    deadline: waiter.deadline,
                    end: End::Unknown,
                };
                unsent.extend(waiter.verdict.send(Ok(released)).err());
            }
            self.follow_pace(&mut state, key);
            close_gate(&mut state, key);
        }
        // A client that disconnected in this moment makes room for the next; that takes the lock again.
        drop(unsent);
    }

    /// Refuses everything that is held for a service: waiting does not help.
    pub(crate) fn refuse_all(&self, service: &ServiceKey, why: HoldError) {
        let mut state = self.state.lock();
        let all = state.rooms.release_all(service);
        state.refuse(&all, why);
    }

    /// A ready pod could not be reached: nothing is released for a moment.
    pub(crate) fn pause_releases(self: &Arc<Self>, key: PortKey) {
        let mut state = self.state.lock();
        let gate = state.gates.entry(key.clone()).or_default();
        if std::mem::replace(&mut gate.paused, true) {
            return;
        }
        let hold = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(UNREACHABLE_BACKOFF).await;
            if let Some(gate) = hold.state.lock().gates.get_mut(&key) {
                gate.paused = false;
            }
            hold.advance(&key);
        });
    }

    /// Follows a port's pace by time, for as long as time gives slots back.
    fn follow_pace(self: &Arc<Self>, state: &mut State, key: &PortKey) {
        let Some(gate) = state.gates.get_mut(key) else {
            return;
        };
        if gate.pace.next_change().is_none() || gate.followed {
            return;
        }
        gate.followed = true;
        let (hold, key) = (self.clone(), key.clone());
        tokio::spawn(async move {
            while let Some(next) = hold.next_change(&key) {
                sleep_until(hold.clock.instant(next)).await;
                if let Some(gate) = hold.state.lock().gates.get_mut(&key) {
                    gate.pace.pass(hold.clock.now());
                }
                hold.advance(&key);
            }
        });
    }

    /// When time next changes a followed pace; it is not followed any more where there is no such moment.
    fn next_change(&self, key: &PortKey) -> Option<Timestamp> {
        let mut state = self.state.lock();
        let gate = state.gates.get_mut(key)?;
        let next = gate.pace.next_change();
        gate.followed = next.is_some();
        next
    }

    fn request_begun(&self, key: &PortKey, ticket: Ticket) {
        if let Some(gate) = self.state.lock().gates.get_mut(key) {
            gate.pace.begun(ticket);
        }
    }

    fn request_stood_aside(self: &Arc<Self>, key: &PortKey, ticket: Ticket) {
        if let Some(gate) = self.state.lock().gates.get_mut(key) {
            gate.pace.stood_aside(ticket);
        }
        self.advance(key);
    }

    fn request_written(self: &Arc<Self>, key: &PortKey, ticket: Ticket) {
        let mut state = self.state.lock();
        if let Some(gate) = state.gates.get_mut(key) {
            gate.pace.written(ticket, self.clock.now());
            self.follow_pace(&mut state, key);
        }
    }

    fn request_ended(self: &Arc<Self>, key: &PortKey, ticket: Ticket, end: End) {
        let answered = match end {
            End::Answered | End::Connected => Some(true),
            End::Failed => Some(false),
            End::Unknown => None,
        };
        if answered == Some(true)
            && let Some(service) = self.table.service(&key.service)
        {
            // Only the first since requests were held: the others find it set.
            let _ = service.stats.first_answer_millis.compare_exchange(
                0,
                self.clock.millis(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        // Time gives the slot of a connection back.
        if end != End::Connected {
            let mut state = self.state.lock();
            if let Some(gate) = state.gates.get_mut(key) {
                let usable = self.table.usable_pods(key).unwrap_or(0);
                gate.pace.ended(ticket, usable, answered);
            }
        }
        self.advance(key);
    }
}

impl State {
    fn held_at(&self, key: &PortKey) -> usize {
        self.rooms.held_at(&key.service, key.listen_port)
    }

    /// These have left the rooms, and waiting does not help them.
    fn refuse(&mut self, tickets: &[Ticket], why: HoldError) {
        for ticket in tickets {
            if let Some(waiter) = self.waiters.remove(ticket) {
                let _ = waiter.verdict.send(Err(why));
            }
        }
    }
}

/// A port without held requests needs no gate; the next wake starts at the first pace again.
fn close_gate(state: &mut State, key: &PortKey) {
    let idle = |gate: &Gate| gate.pace.is_idle() && !gate.paused;
    if state.held_at(key) == 0 && state.gates.get(key).is_some_and(idle) {
        state.gates.remove(key);
    }
}

impl Drop for TicketGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.hold.state.lock();
        state.rooms.leave(self.ticket);
        state.waiters.remove(&self.ticket);
        close_gate(&mut state, &self.key);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        self.stats.held.fetch_sub(1, Ordering::Relaxed);
        if state.rooms.held_total() == 0 {
            self.hold
                .urgent
                .send_if_modified(|urgent| std::mem::replace(urgent, false));
        }
    }
}

impl Released {
    /// A pod is tried now.
    pub(crate) fn begun(&self) {
        self.hold.request_begun(&self.key, self.ticket);
    }

    /// The pods were reached and cannot take it yet: it takes no slot until it begins again.
    pub(crate) fn stands_aside(&self) {
        self.hold.request_stood_aside(&self.key, self.ticket);
    }

    /// A pod is connected and gets it now.
    pub(crate) fn written(&self) {
        self.hold.request_written(&self.key, self.ticket);
    }

    /// A pod has taken the request.
    pub(crate) fn answered(mut self) {
        self.end = End::Answered;
    }

    /// A pod has taken the connection, which was [`Self::written`] before.
    pub(crate) fn connected(mut self) {
        self.end = End::Connected;
    }

    /// No pod could be reached. With its ticket it can wait again.
    pub(crate) fn failed(mut self) -> Ticket {
        self.end = End::Failed;
        self.ticket
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.hold.request_ended(&self.key, self.ticket, self.end);
    }
}
