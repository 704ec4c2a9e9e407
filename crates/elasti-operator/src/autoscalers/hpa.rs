//! HorizontalPodAutoscalers: their lower bound.
//! They are not written to: an HPA stops by itself at zero replicas.

use std::collections::BTreeSet;

use elasti_api::AutoscalerType;
use elasti_core::facts;
use serde_json::Value;

use crate::name::Name;
use crate::slim::FromObject;
use crate::store::{Cache, CachedKind, Source, autoscaler_kind};

/// What is kept of a HorizontalPodAutoscaler.
#[derive(Clone, Debug)]
pub(crate) struct HpaView {
    name: Name,
    min_replicas: u32,
}

impl FromObject for HpaView {
    fn from_object(object: Value) -> Result<Self, serde_json::Error> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        Ok(Self {
            name: Name::new(
                text("/metadata/namespace").unwrap_or_default(),
                text("/metadata/name").unwrap_or_default(),
            ),
            min_replicas: facts::hpa_min_replicas(&object),
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

impl CachedKind for HpaView {
    const RESOURCE: &'static str = "horizontalpodautoscalers";

    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, _: Source) {
        let before = cache.hpas.insert(self.name.clone(), self.min_replicas);
        // An HPA writes its status every few seconds; only its bound matters.
        if before != Some(self.min_replicas) {
            let kind = autoscaler_kind(AutoscalerType::Hpa);
            cache.touch_autoscaler(&kind, &self.name, touched);
        }
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        cache.hpas.remove(name);
        let kind = autoscaler_kind(AutoscalerType::Hpa);
        cache.touch_autoscaler(&kind, name, touched);
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.hpas.keys().cloned().collect()
    }
}
