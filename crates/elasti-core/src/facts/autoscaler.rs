//! The autoscalers beside Elasti: an HPA's lower bound, and the pause annotations of a KEDA ScaledObject.

use elasti_api::{AutoscalerType, ScaleTargetRef, names};
use serde_json::{Value, json};

use crate::observed::{Autoscaler, KedaBefore, KedaPause};

/// What can be judged of an HPA or a ScaledObject that may or may not belong to a target.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoscalerFacts {
    /// Its name.
    pub name: String,
    /// The kind that it scales; KEDA may leave it out.
    target_kind: String,
    /// The name of what it scales.
    pub target_name: String,
    /// KEDA has made this HPA for a ScaledObject.
    pub of_keda: bool,
    /// A ScaledObject that may scale to zero by itself.
    pub reaches_zero: bool,
}

impl AutoscalerFacts {
    /// Reads an autoscaler of either kind.
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let text = |pointer: &str| {
            let text = object.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let owners = object.pointer("/metadata/ownerReferences");
        let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
        let least = object.pointer("/spec/minReplicaCount");
        Self {
            name: text("/metadata/name"),
            target_kind: text("/spec/scaleTargetRef/kind"),
            target_name: text("/spec/scaleTargetRef/name"),
            of_keda: owners.any(|one| one.get("kind").is_some_and(|kind| kind == "ScaledObject")),
            reaches_zero: least.and_then(Value::as_i64).unwrap_or(0) == 0,
        }
    }

    /// Whether it scales this target.
    #[must_use]
    pub fn scales(&self, target: &ScaleTargetRef) -> bool {
        let kind = match self.target_kind.as_str() {
            "" => "Deployment",
            kind => kind,
        };
        self.target_name == target.name && kind == target.canonical_kind()
    }
}

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
