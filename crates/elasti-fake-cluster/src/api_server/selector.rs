//! Label and field selectors: parsing with Kubernetes' messages, and matching.

use serde_json::{Value, json};

use super::object::{Object as _, escape};
use super::resources::Resource;
use super::status::ApiError;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
    Greater(String, i64),
    Less(String, i64),
}

impl Requirement {
    fn matches(&self, read: impl Fn(&str) -> Option<String>) -> bool {
        let number = |key: &str| read(key).and_then(|text| text.parse::<i64>().ok());
        match self {
            Self::In(key, values) => read(key).is_some_and(|value| values.contains(&value)),
            Self::NotIn(key, values) => read(key).is_none_or(|value| !values.contains(&value)),
            Self::Exists(key) => read(key).is_some(),
            Self::Missing(key) => read(key).is_none(),
            Self::Greater(key, bound) => number(key).is_some_and(|value| value > *bound),
            Self::Less(key, bound) => number(key).is_some_and(|value| value < *bound),
        }
    }
}

/// Labels and fields of one request, both ANDed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl Selector {
    /// Reads `labelSelector` and `fieldSelector` of a request for `resource`.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self {
            labels: parse_labels(labels)?,
            fields: parse_fields(resource, fields)?,
        })
    }

    /// The selector of a Service: equality only.
    pub(crate) fn equalities(labels: &Value) -> Self {
        let pairs = labels
            .strings("")
            .into_iter()
            .map(|(key, value)| Requirement::In(key, vec![value]));
        Self {
            labels: pairs.collect(),
            fields: Vec::new(),
        }
    }

    /// A `LabelSelector` of an object's spec.
    pub(crate) fn from_spec(selector: &Value) -> Self {
        let mut all = Self::equalities(selector.at("/matchLabels"));
        for expression in selector.list("/matchExpressions") {
            let key = expression.text("/key").to_owned();
            let values = || {
                expression
                    .list("/values")
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect()
            };
            all.labels.push(match expression.text("/operator") {
                "In" => Requirement::In(key, values()),
                "NotIn" => Requirement::NotIn(key, values()),
                "Exists" => Requirement::Exists(key),
                _ => Requirement::Missing(key),
            });
        }
        all
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| {
            object
                .at("/metadata/labels")
                .get(key)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let field = |key: &str| Some(field_value(object, key));
        self.labels.iter().all(|one| one.matches(label))
            && self.fields.iter().all(|one| one.matches(field))
    }
}

fn field_value(object: &Value, path: &str) -> String {
    let direct = object.at(&format!(
        "/{}",
        path.split('.').map(escape).collect::<Vec<_>>().join("/")
    ));
    match direct {
        Value::String(text) => text.clone(),
        Value::Null if path == "spec.unschedulable" => "false".to_owned(),
        Value::Null if path == "source" => object.text("/source/component").to_owned(),
        Value::Null if path == "status.replicas" => "0".to_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<Requirement>, ApiError> {
    let mut all = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (key, values, negated) = if let Some((key, value)) = term.split_once("!=") {
            (key, value, true)
        } else if let Some((key, value)) = term.split_once("==") {
            (key, value, false)
        } else if let Some((key, value)) = term.split_once('=') {
            (key, value, false)
        } else {
            let why = format!("invalid selector: '{text}'; can't understand '{term}'");
            return Err(ApiError::BadRequest(why));
        };
        if !selectable(resource, key) {
            return Err(ApiError::BadRequest(unsupported(resource, key)));
        }
        let values = vec![values.to_owned()];
        let key = stored_field(resource, key);
        all.push(if negated {
            Requirement::NotIn(key, values)
        } else {
            Requirement::In(key, values)
        });
    }
    Ok(all)
}

fn unsupported(resource: &Resource, key: &str) -> String {
    if resource.group.is_empty()
        || matches!(resource.group.as_str(), "events.k8s.io")
        || resource.custom.is_some()
    {
        format!("field label not supported: {key}")
    } else {
        let known = format!("\"{key}\" is not a known field selector");
        format!("{known}: only \"metadata.name\", \"metadata.namespace\"")
    }
}

/// Both event groups are stored in the core form.
fn stored_field(resource: &Resource, key: &str) -> String {
    match (resource.group.as_str(), key) {
        ("events.k8s.io", "reportingController") => "reportingComponent".to_owned(),
        ("events.k8s.io", _) => key.replace("regarding.", "involvedObject."),
        _ => key.to_owned(),
    }
}

fn selectable(resource: &Resource, key: &str) -> bool {
    if key == "metadata.name" || (key == "metadata.namespace" && resource.namespaced) {
        return true;
    }
    if let Some(custom) = &resource.custom {
        return custom
            .selectable
            .iter()
            .any(|path| path.trim_start_matches('.') == key);
    }
    let known: &[&str] = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "namespaces") => &["status.phase", "name"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("apps", "replicasets") => &["status.replicas"],
        _ => &[],
    };
    known.contains(&key)
}

/// `a=b,c!=d,e in (f,g),h,!i,j>5`
fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    let mut all = Vec::new();
    for term in split_terms(text) {
        let term = term.trim();
        if term.is_empty() {
            continue;
        }
        let one = parse_term(term).map_err(ApiError::BadRequest)?;
        all.push(one);
    }
    Ok(all)
}

fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                terms.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(text.get(start..).unwrap_or_default());
    terms
}

fn parse_term(term: &str) -> Result<Requirement, String> {
    if let Some(key) = term.strip_prefix('!') {
        return Ok(Requirement::Missing(label_key(key.trim())?));
    }
    let end = term
        .find(|letter: char| letter.is_whitespace() || "=!<>(".contains(letter))
        .unwrap_or(term.len());
    let (key, rest) = term.split_at(end);
    let key = label_key(key)?;
    let rest = rest.trim();
    if rest.is_empty() {
        return Ok(Requirement::Exists(key));
    }
    for (sign, negated) in [("!=", true), ("==", false), ("=", false)] {
        if let Some(value) = rest.strip_prefix(sign) {
            let values = vec![label_value(value.trim())?];
            return Ok(if negated {
                Requirement::NotIn(key, values)
            } else {
                Requirement::In(key, values)
            });
        }
    }
    if let Some(bound) = rest.strip_prefix('>').or_else(|| rest.strip_prefix('<')) {
        let bound: i64 = bound.trim().parse().map_err(|_| {
            format!("for 'Gt', 'Lt' operators, the value must be an integer: {bound}")
        })?;
        return Ok(if rest.starts_with('>') {
            Requirement::Greater(key, bound)
        } else {
            Requirement::Less(key, bound)
        });
    }
    let word_end = rest
        .find(|letter: char| letter.is_whitespace() || "(=!".contains(letter))
        .unwrap_or(rest.len());
    let (word, list) = rest.split_at(word_end);
    let unexpected = || {
        format!(
            "unable to parse requirement: found '{word}', expected: in, notin, =, ==, !=, gt, lt"
        )
    };
    let inner = list
        .trim()
        .strip_prefix('(')
        .and_then(|list| list.strip_suffix(')'))
        .ok_or_else(unexpected)?;
    let values = inner
        .split(',')
        .map(|value| label_value(value.trim()))
        .collect::<Result<Vec<_>, _>>()?;
    match word {
        "in" => Ok(Requirement::In(key, values)),
        "notin" => Ok(Requirement::NotIn(key, values)),
        _ => Err(unexpected()),
    }
}

fn label_key(key: &str) -> Result<String, String> {
    match super::names::qualified_name(key) {
        None => Ok(key.to_owned()),
        Some(why) => Err(format!(
            "unable to parse requirement: <nil>: Invalid value: {}: {why}",
            json!(key)
        )),
    }
}

fn label_value(value: &str) -> Result<String, String> {
    match super::names::label_value(value) {
        None => Ok(value.to_owned()),
        Some(why) => Err(format!(
            "unable to parse requirement: values[0][]: Invalid value: {}: {why}",
            json!(value)
        )),
    }
}
