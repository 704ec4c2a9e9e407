//! KEDA's ScaledObjects: the pause annotations as facts, and as a patch.

use std::collections::BTreeSet;

use elasti_api::{AutoscalerType, names};
use elasti_core::facts;
use elasti_core::observed::KedaPause;
use serde_json::{Value, json};

use crate::name::Name;
use crate::slim::FromObject;
use crate::store::{Cache, CachedKind, ScaledView, Source, autoscaler_kind};

/// What is kept of a ScaledObject.
#[derive(Clone, Debug)]
pub(crate) struct ScaledObject {
    name: Name,
    view: ScaledView,
}

impl FromObject for ScaledObject {
    fn from_object(object: Value) -> Result<Self, serde_json::Error> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        Ok(Self {
            name: Name::new(
                text("/metadata/namespace").unwrap_or_default(),
                text("/metadata/name").unwrap_or_default(),
            ),
            view: ScaledView {
                version: text("/metadata/resourceVersion").unwrap_or_default().into(),
                pause: facts::keda_pause(&object),
            },
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

impl CachedKind for ScaledObject {
    const RESOURCE: &'static str = "scaledobjects";

    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, _: Source) {
        let pause = self.view.pause.clone();
        let before = cache.scaled.insert(self.name.clone(), self.view);
        if before.map(|view| view.pause) != Some(pause) {
            let kind = autoscaler_kind(AutoscalerType::Keda);
            cache.touch_autoscaler(&kind, &self.name, touched);
        }
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        cache.scaled.remove(name);
        let kind = autoscaler_kind(AutoscalerType::Keda);
        cache.touch_autoscaler(&kind, name, touched);
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.scaled.keys().cloned().collect()
    }
}

/// The patch that sets the annotations, if the object has not been written in between.
pub(crate) fn patch(pause: &KedaPause, version: &str) -> Value {
    let KedaPause {
        paused,
        paused_replicas,
        before,
    } = pause;
    json!({"metadata": {
        "resourceVersion": version,
        "annotations": {
            names::KEDA_PAUSED_ANNOTATION: paused,
            names::KEDA_PAUSED_REPLICAS_ANNOTATION: paused_replicas,
            names::KEDA_BEFORE_ANNOTATION: before.as_ref().map(facts::keda_before_to_text),
        },
    }})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use elasti_core::observed::KedaBefore;

    use super::*;

    #[test]
    fn a_patch_and_the_object_read_back_agree() {
        let before = KedaBefore {
            paused: Some("false".into()),
            paused_replicas: None,
        };
        let pauses = [
            KedaPause::default(),
            KedaPause {
                paused: Some("true".into()),
                paused_replicas: Some("0".into()),
                before: Some(before),
            },
        ];
        for pause in pauses {
            let mut object = json!({"metadata": {"name": "so", "namespace": "shop"}});
            let patch = patch(&pause, "7");
            let annotations = patch.pointer("/metadata/annotations").unwrap();
            let kept = annotations.as_object().unwrap().iter();
            let kept: serde_json::Map<String, Value> = kept
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            object["metadata"]["annotations"] = Value::Object(kept);
            assert_eq!(ScaledObject::from_object(object).unwrap().view.pause, pause);
        }
    }
}
