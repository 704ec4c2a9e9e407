//! The kubelet: starts the pods bound to its node, ends the deleted ones, and restores their status at every tick.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::NodeConfig;
use super::pod::{self, PodRecord, SharedPodRecord};
use super::visits::Visits;
use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;
use crate::controllers::{Change, Controller, ControllerClient, Kind};

struct Running {
    uid: String,
    record: SharedPodRecord,
    stop: watch::Sender<Option<Duration>>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type PodRecords = Arc<Mutex<BTreeMap<String, SharedPodRecord>>>;

pub(crate) struct Kubelet {
    node: String,
    network: u32,
    given: u32,
    pods: BTreeMap<Key, Running>,
    records: PodRecords,
    visits: Visits,
}

impl Kubelet {
    pub(crate) fn new(config: &NodeConfig, visits: Visits) -> Self {
        Self {
            node: config.name.clone(),
            network: u32::from(config.pod_network),
            given: 0,
            pods: BTreeMap::new(),
            records: PodRecords::default(),
            visits,
        }
    }

    pub(crate) fn records(&self) -> PodRecords {
        self.records.clone()
    }

    /// Addresses are not given out again for as long as possible: a late client must not meet a stranger.
    fn next_address(&mut self) -> Ipv4Addr {
        self.given = self.given % 4_094 + 1;
        Ipv4Addr::from(self.network + self.given)
    }

    fn start(&mut self, client: &ControllerClient, key: &Key, value: &serde_json::Value) {
        let address = self.next_address();
        let record = PodRecord::new(value, address, &client.timestamp());
        let uid = record.uid.clone();
        let record: SharedPodRecord = Arc::new(Mutex::new(record));
        let (stop, stopped) = watch::channel(None);
        let task = tokio::spawn(pod::live(
            client.clone(),
            value.clone(),
            record.clone(),
            stopped,
            self.visits.clone(),
        ))
        .abort_handle();
        self.records.lock().insert(uid.clone(), record.clone());
        self.pods.insert(
            key.clone(),
            Running {
                uid,
                record,
                stop,
                task,
            },
        );
    }
}

impl Controller for Kubelet {
    const COMPONENT: &'static str = "kubelet";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::PODS]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        let pod = &change.object.value;
        if pod.text("/spec/nodeName") == self.node {
            vec![Key::from_object(pod)]
        } else {
            vec![]
        }
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let stored = client
            .get(Kind::PODS, key)
            .filter(|pod| pod.value.text("/spec/nodeName") == self.node);
        let uid = stored
            .as_ref()
            .map_or("", |pod| pod.value.text("/metadata/uid"));
        if self.pods.get(key).is_some_and(|running| running.uid != uid)
            && let Some(gone) = self.pods.remove(key)
        {
            self.records.lock().remove(&gone.record.lock().uid);
        }
        let Some(stored) = stored else {
            return Ok(None);
        };
        let going = stored.value.at("/metadata/deletionTimestamp").is_string();
        match self.pods.get(key) {
            None if going => drop(client.delete(
                Kind::PODS,
                key,
                &serde_json::json!({"gracePeriodSeconds": 0}),
            )),
            None => self.start(client, key, &stored.value),
            Some(running) if going => {
                let seconds = stored
                    .value
                    .number("/metadata/deletionGracePeriodSeconds")
                    .unwrap_or(30);
                let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                running.stop.send_if_modified(|grace_set| {
                    if grace_set.is_none() {
                        *grace_set = Some(grace);
                        true
                    } else {
                        false
                    }
                });
            }
            Some(running) => pod::follow_gates(client, &running.record, &stored.value),
        }
        Ok(None)
    }
}

/// At every tick the kubelet writes what it knows, and so undoes what others wrote.
pub(crate) async fn tick(records: PodRecords, client: ControllerClient, config: NodeConfig) {
    let mut ticks = tokio::time::interval_at(Instant::now() + config.first_tick, config.tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let all: Vec<SharedPodRecord> = records.lock().values().cloned().collect();
        for record in all {
            pod::report(&client, &record);
        }
    }
}
