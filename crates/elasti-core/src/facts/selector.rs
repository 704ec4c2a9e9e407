//! The label selector of a workload: which pods it counts as its own.

use std::collections::BTreeMap;

use serde_json::Value;

/// What the labels of a pod must be; all of it holds for the workload's own pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    label: String,
    /// The values that it may have; `None` for any.
    values: Option<Vec<String>>,
    /// It must not be as the values say.
    negated: bool,
}

impl PodSelector {
    /// Reads `spec.selector` of a workload, or else the text that a `/scale` shows. `None` if there is none, or if it
    /// asks for nothing.
    #[must_use]
    pub fn from_object(object: &Value) -> Option<Self> {
        let found = object.pointer("/spec/selector").and_then(structured);
        found.or_else(|| Self::from_scale(object))
    }

    /// Reads `status.selector` of a Scale; many kinds have the same in their own status.
    #[must_use]
    pub fn from_scale(scale: &Value) -> Option<Self> {
        let text = scale.pointer("/status/selector").and_then(Value::as_str)?;
        Self::from_requirements(
            requirements_in(text)
                .iter()
                .map(|one| parsed(one))
                .collect(),
        )
    }

    fn from_requirements(requirements: Vec<Requirement>) -> Option<Self> {
        (!requirements.is_empty()).then_some(Self(requirements))
    }

    /// Whether a pod with these labels is one of the workload's.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|one| {
            let value = labels.get(&one.label);
            let holds = match &one.values {
                Some(values) => value.is_some_and(|value| values.contains(value)),
                None => value.is_some(),
            };
            holds != one.negated
        })
    }
}

fn structured(selector: &Value) -> Option<PodSelector> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten().filter_map(|(label, value)| {
        Some(Requirement {
            label: label.clone(),
            values: Some(vec![text(value)?]),
            negated: false,
        })
    });
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let expressions = expressions.into_iter().flatten().filter_map(|one| {
        let operator = one.get("operator").and_then(Value::as_str)?;
        let values = one.get("values").and_then(Value::as_array);
        let values = || values.into_iter().flatten().filter_map(text).collect();
        Some(Requirement {
            label: text(one.get("key")?)?,
            values: matches!(operator, "In" | "NotIn").then(values),
            negated: matches!(operator, "NotIn" | "DoesNotExist"),
        })
    });
    PodSelector::from_requirements(labels.chain(expressions).collect())
}

/// The parts of `app=web,track in (a,b)`: a comma between parentheses separates none.
fn requirements_in(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut inside = false;
    for letter in text.chars() {
        match letter {
            ',' if !inside => parts.push(String::new()),
            _ => {
                inside = letter == '(' || (inside && letter != ')');
                parts
                    .last_mut()
                    .into_iter()
                    .for_each(|part| part.push(letter));
            }
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn parsed(text: &str) -> Requirement {
    let list = |values: &str| {
        let values = values.trim().trim_matches(['(', ')']).split(',');
        values.map(|value| value.trim().to_owned()).collect()
    };
    let separators = [("!=", true), ("==", false), ("=", false)];
    let words = [(" notin ", true), (" in ", false)];
    for (separator, negated) in words.into_iter().chain(separators) {
        if let Some((label, values)) = text.split_once(separator) {
            return Requirement {
                label: label.trim().to_owned(),
                values: Some(list(values)),
                negated,
            };
        }
    }
    let text = text.trim();
    Requirement {
        label: text.trim_start_matches('!').trim().to_owned(),
        values: None,
        negated: text.starts_with('!'),
    }
}
