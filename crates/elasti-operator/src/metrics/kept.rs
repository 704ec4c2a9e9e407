//! The families that KubeElasti has: users' dashboards and alerts read them, so names and labels stay as they are.

use std::sync::Arc;

use elasti_runtime::metrics::{Family, Registry};

/// Each with the labels that KubeElasti gives it, and none more.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) reconcile: Arc<Family>,
    pub(super) finalizer: Arc<Family>,
    pub(super) update: Arc<Family>,
    pub(super) mode: Arc<Family>,
    pub(super) informer_count: Arc<Family>,
    pub(super) informer: Arc<Family>,
    pub(super) informer_handler: Arc<Family>,
    pub(super) wake_writes: Arc<Family>,
}

impl Kept {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            reconcile: registry.histogram(
                "elasti_operator_reconcile",
                "Seconds that one reconcile of an ElastiService took.",
                &["crd_name", "error"],
            ),
            finalizer: registry.counter(
                "elasti_operator_CRD_finalizer_counter",
                "Finalizers taken off ElastiServices that are being deleted.",
                &["crd_name", "error"],
            ),
            update: registry.counter(
                "elasti_operator_CRD_update_counter",
                "Statuses written.",
                &["crd_name", "mode", "error"],
            ),
            mode: registry.gauge(
                "elasti_operator_mode",
                "1 while the resolver answers (proxy), 0 while the pods do (serve).",
                &["crd_name"],
            ),
            informer_count: registry.gauge(
                "elasti_operator_informer_count",
                "1 for each target and each Service that is watched.",
                &["informer_name"],
            ),
            informer: registry.counter(
                "elasti_operator_informer_counter",
                "Targets and Services whose watch began.",
                &["crd_name", "action", "error"],
            ),
            informer_handler: registry.counter(
                "elasti_operator_informer_handler_counter",
                "Changes of targets and Services.",
                &["crd_name", "key", "error"],
            ),
            wake_writes: registry.counter(
                "elasti_operator_scale_counter",
                "Scale writes that wake a target.",
                &["service_name", "namespace", "target", "error"],
            ),
        }
    }
}
