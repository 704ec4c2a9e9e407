//! Permits for calls that others answer: a few at a time, shared fairly by the namespaces that wait for one.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::turns::Turns;

/// Who waits for a permit.
#[derive(Debug)]
pub struct Lane(Mutex<Turns<oneshot::Sender<Permit>>>);

/// One call may be sent as long as this lives.
#[derive(Debug)]
pub struct Permit {
    /// `None` once it is given back.
    lane: Option<Arc<Lane>>,
    namespace: Arc<str>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.0.lock().ended(&self.namespace);
            lane.grant();
        }
    }
}

impl Lane {
    /// So many permits.
    #[must_use]
    pub fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Turns::new(permits))))
    }

    /// No namespace gets more than `most_of_each`.
    #[must_use]
    pub fn with_most(permits: usize, most_of_each: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Turns::with_most(permits, most_of_each))))
    }

    /// Waits for the namespace's turn, within the namespace before all others if it is `first`; `None` never happens while the
    /// lane lives.
    pub async fn permit(self: &Arc<Self>, namespace: &Arc<str>, first: bool) -> Option<Permit> {
        let (send, receive) = oneshot::channel();
        {
            let mut turns = self.0.lock();
            match first {
                true => turns.push_first(namespace, send),
                false => turns.push(namespace, send),
            }
        }
        self.grant();
        receive.await.ok()
    }

    /// Gives out what is free.
    fn grant(self: &Arc<Self>) {
        loop {
            let Some((namespace, waits)) = self.0.lock().take_next() else {
                return;
            };
            let permit = Permit {
                lane: Some(self.clone()),
                namespace,
            };
            if let Err(mut unused) = waits.send(permit) {
                // It gave up meanwhile.
                unused.lane = None;
                self.0.lock().ended(&unused.namespace);
            }
        }
    }
}
