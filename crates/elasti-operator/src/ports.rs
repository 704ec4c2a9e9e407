//! Listen ports for the Services' ports: elasti-core's allocator behind a lock.

use std::ops::RangeInclusive;
use std::sync::Arc;

use elasti_api::ListenPort;
use elasti_core::observed::PortsGiven;
use elasti_core::ports::{PortAllocator, ServiceKey, WantedPort};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::name::Name;
use crate::slim::{Declared, ServiceView};

/// If none is in quarantine: one that is released meanwhile is free after that, or after this.
const EXHAUSTED_PAUSE_MIN: SignedDuration = SignedDuration::from_mins(1);

/// The listen ports of one operator.
#[derive(Debug)]
pub(crate) struct Ports {
    range: RangeInclusive<u16>,
    quarantine: SignedDuration,
    /// Services of several namespaces have them.
    shared: bool,
    allocator: Mutex<PortAllocator>,
}

/// The listen ports of one Service's TCP ports.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) ports: PortsGiven,
    /// If there are too few: when one may become free.
    pub(crate) requeue_at: Option<Timestamp>,
}

impl Ports {
    pub(crate) fn new(
        range: RangeInclusive<u16>,
        quarantine: SignedDuration,
        shared: bool,
    ) -> Self {
        let ports = Self {
            allocator: Mutex::new(PortAllocator::new(range.clone(), quarantine)),
            range,
            quarantine,
            shared,
        };
        ports.restore(&[]);
        ports
    }

    /// The ports that a Service has, or gets now.
    pub(crate) fn allocate(
        &self,
        name: &Name,
        recorded: &[ListenPort],
        service: Option<&ServiceView>,
        now: Timestamp,
    ) -> Allocation {
        let Some(service) = service else {
            // Without a Service nothing is known to have changed.
            return Allocation {
                ports: PortsGiven::Given(recorded.to_vec()),
                requeue_at: None,
            };
        };
        let tcp = service.facts.service.ports.iter().filter(|port| port.tcp);
        let wanted: Vec<WantedPort> = tcp
            .map(|port| WantedPort {
                name: port.name.clone(),
                port: port.port,
            })
            .collect();
        let owner = service_key(name);
        let mut allocator = self.allocator.lock();
        for port in allocator.remember(&owner, recorded) {
            tracing::warn!(service = %owner, port = port.listen_port, "listen port in the status not usable");
        }
        match allocator.assign(&owner, &wanted, now) {
            Ok(given) => Allocation {
                ports: PortsGiven::Given(given),
                requeue_at: None,
            },
            Err(exhausted) => {
                let pause = self.quarantine.max(EXHAUSTED_PAUSE_MIN);
                let requeue_at = exhausted.requeue_at.or(now.checked_add(pause).ok());
                Allocation {
                    ports: PortsGiven::Exhausted,
                    requeue_at,
                }
            }
        }
    }

    /// A Service is not managed any more.
    pub(crate) fn release(&self, service: &Name, now: Timestamp) {
        self.allocator.lock().release(&service_key(service), now);
    }

    /// Starts over with the ports that the statuses show; the first of two with the same port keeps it. No share bounds what
    /// is in use.
    pub(crate) fn restore(&self, all: &[Arc<Declared>]) {
        let mut allocator = PortAllocator::new(self.range.clone(), self.quarantine);
        for me in all {
            allocator.remember(&service_key(&me.service()), &me.status.ports);
            for other in &me.status.services {
                let service = me.name.sibling(other.name.as_str());
                allocator.remember(&service_key(&service), &other.ports);
            }
        }
        *self.allocator.lock() = match self.shared {
            true => allocator.shared_by_namespaces(),
            false => allocator,
        };
    }
}

fn service_key(service: &Name) -> ServiceKey {
    ServiceKey::new(&*service.namespace, &*service.name)
}
