//! The autoscalers beside Elasti: an HPA's lower bound, and the pause annotations of a KEDA ScaledObject.

use elasti_api::{AutoscalerType, names};
use serde_json::{Value, json};

use crate::observed::{Autoscaler, KedaBefore, KedaPause};

/// The autoscaler of this type that a spec names; `None` if it does not exist.
#[must_use]
pub fn autoscaler(type_: AutoscalerType, object: Option<&Value>) -> Autoscaler {
    match (object, type_) {
        (None, _) => Autoscaler::Missing,
        (Some(object), AutoscalerType::Hpa) => Autoscaler::Hpa {
            min_replicas: hpa_min_replicas(object),
        },
        (Some(object), AutoscalerType::Keda) => Autoscaler::Keda(keda_pause(object)),
    }
}

/// The lower bound of a HorizontalPodAutoscaler, where nothing means 1.
#[must_use]
pub fn hpa_min_replicas(object: &Value) -> u32 {
    let bound = object.pointer("/spec/minReplicas").and_then(Value::as_u64);
    bound.and_then(|n| u32::try_from(n).ok()).unwrap_or(1)
}

/// The pause annotations of a ScaledObject.
#[must_use]
pub fn keda_pause(object: &Value) -> KedaPause {
    let annotations = object.pointer("/metadata/annotations");
    let annotation = |name: &str| {
        let value = annotations.and_then(|all| all.get(name));
        value.and_then(Value::as_str).map(str::to_owned)
    };
    let before = annotation(names::KEDA_BEFORE_ANNOTATION);
    KedaPause {
        paused: annotation(names::KEDA_PAUSED_ANNOTATION),
        paused_replicas: annotation(names::KEDA_PAUSED_REPLICAS_ANNOTATION),
        before: before.map(|text| keda_before_from_text(&text)),
    }
}

/// What the annotations were before ours, as our own annotation keeps it.
#[must_use]
pub fn keda_before_to_text(before: &KedaBefore) -> String {
    let KedaBefore {
        paused,
        paused_replicas,
    } = before;
    json!({"paused": paused, "pausedReplicas": paused_replicas}).to_string()
}

/// Text that cannot be parsed means that nothing is known to have stood there.
fn keda_before_from_text(text: &str) -> KedaBefore {
    let before: Value = serde_json::from_str(text).unwrap_or_default();
    let text = |key: &str| before.get(key).and_then(Value::as_str).map(str::to_owned);
    KedaBefore {
        paused: text("paused"),
        paused_replicas: text("pausedReplicas"),
    }
}
