//! Traffic: requests to a service at a steady pace until it is told to stop.
//! Never waits for an answer before it sends the next request, and never leaves one unaccounted for.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::backend::Service;
use super::ledger::{Entry, Ledger};
use elasti_visitor::visit;

/// Traffic under way.
#[derive(Debug)]
pub(crate) struct Traffic {
    stop: watch::Sender<bool>,
    senders: JoinSet<()>,
}

impl Traffic {
    /// Sends one request to every service each `every`.
    pub(crate) fn start(
        services: &[Service],
        ledger: &Ledger,
        every: Duration,
        patience: Duration,
    ) -> Self {
        let stop = watch::Sender::new(false);
        let mut senders = JoinSet::new();
        for service in services {
            let (service, ledger) = (service.clone(), ledger.clone());
            senders.spawn(send(service, ledger, every, patience, stop.subscribe()));
        }
        Self { stop, senders }
    }

    /// Sends no more, and waits for the answers that are due.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.senders.join_next().await.is_some() {}
    }
}

async fn send(
    service: Service,
    ledger: Ledger,
    every: Duration,
    patience: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let mut requests = JoinSet::new();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            _ = ticks.tick() => {
                requests.spawn(send_one(service.clone(), ledger.clone(), patience));
            }
            Some(_) = requests.join_next() => {}
        }
    }
    while requests.join_next().await.is_some() {}
}

/// One request, written into the ledger.
pub(crate) async fn send_one(service: Service, ledger: Ledger, patience: Duration) -> Entry {
    let sent_at = Instant::now();
    let outcome = visit(service.address, service.path, patience).await;
    let entry = Entry {
        service: service.name,
        sent_at,
        took: sent_at.elapsed(),
        outcome,
    };
    ledger.write(entry.clone());
    entry
}
