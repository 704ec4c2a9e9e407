//! Traffic: requests to a service at a fixed interval until it is stopped.
//! Never waits for a response before it sends the next request.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::backend::Service;
use super::request_log::{Entry, RequestLog};
use elasti_visitor::visit;

/// Ongoing traffic.
#[derive(Debug)]
pub(crate) struct Traffic {
    stop: watch::Sender<bool>,
    senders: JoinSet<()>,
}

impl Traffic {
    /// Sends one request to every service each `every`.
    pub(crate) fn start(
        services: &[Service],
        requests: &RequestLog,
        every: Duration,
        timeout: Duration,
    ) -> Self {
        let stop = watch::Sender::new(false);
        let mut senders = JoinSet::new();
        for service in services {
            let (service, requests) = (service.clone(), requests.clone());
            senders.spawn(send(service, requests, every, timeout, stop.subscribe()));
        }
        Self { stop, senders }
    }

    /// Sends no more, and waits for outstanding responses.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.senders.join_next().await.is_some() {}
    }
}

async fn send(
    service: Service,
    requests: RequestLog,
    every: Duration,
    timeout: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let mut in_flight = JoinSet::new();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            _ = ticks.tick() => {
                in_flight.spawn(send_one(service.clone(), requests.clone(), timeout));
            }
            Some(_) = in_flight.join_next() => {}
        }
    }
    while in_flight.join_next().await.is_some() {}
}

/// One request, written into the log.
pub(crate) async fn send_one(service: Service, requests: RequestLog, timeout: Duration) -> Entry {
    let sent_at = Instant::now();
    let outcome = visit(service.address, service.path, timeout).await;
    let entry = Entry {
        service: service.name,
        sent_at,
        took: sent_at.elapsed(),
        outcome,
    };
    requests.write(entry.clone());
    entry
}
