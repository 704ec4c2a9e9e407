//! The `/scale` subresource of workloads and of custom resources that declare it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::apply::managed;
use super::object::Object as _;
use super::resources::Resource;
use super::session::{Answer, Session};
use super::status::{About, ApiError, Cause};
use super::store::Stored;
use super::write::Ownership;

/// The Scale of an object.
pub(crate) fn from_object(resource: &Resource, object: &Value) -> Value {
    let Some(paths) = &resource.scale else {
        return Value::Null;
    };
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {},
        "spec": {},
        "status": {"replicas": object.number(&paths.status_replicas).unwrap_or(0)},
    });
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object.pointer(&format!("/metadata/{field}")) {
            scale.put(&format!("/metadata/{field}"), value.clone());
        }
    }
    // Go leaves a zero out: a Scale without replicas means none.
    if let Some(replicas) = object
        .number(&paths.spec_replicas)
        .filter(|replicas| *replicas != 0)
    {
        scale.put("/spec/replicas", replicas);
    }
    let selector = match &paths.label_selector {
        Some(path) => object.text(path).to_owned(),
        None if resource.custom.is_none() => selector_text(object.at("/spec/selector")),
        None => String::new(),
    };
    if !selector.is_empty() {
        scale.put("/status/selector", selector);
    }
    scale
}

/// `a=b,c in (d)` as `status.selector` spells it.
pub(crate) fn selector_text(selector: &Value) -> String {
    let mut terms: Vec<String> = selector
        .strings("/matchLabels")
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    for expression in selector.list("/matchExpressions") {
        let key = expression.text("/key");
        let values: Vec<&str> = expression
            .list("/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        terms.push(match expression.text("/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    terms.sort();
    terms.join(",")
}

/// An applied Scale as a configuration of the object itself.
pub(crate) fn as_parent(resource: &Resource, scale: &Value) -> Value {
    let mut parent = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": scale.at("/metadata")});
    if let (Some(paths), Some(replicas)) = (&resource.scale, scale.number("/spec/replicas")) {
        parent.put(&paths.spec_replicas, replicas);
    }
    parent
}

/// GET of the subresource.
pub(crate) fn get(session: &Session<'_>) -> Result<Answer, ApiError> {
    let live = session.live()?;
    let resource = session.resource();
    if let Some(paths) = resource
        .scale
        .as_ref()
        .filter(|_| resource.custom.is_some())
        && live.value.number(&paths.spec_replicas).is_none()
    {
        let why = format!(
            "the spec replicas field {:?} does not exist",
            paths.spec_replicas.replace('/', ".")
        );
        return Err(ApiError::InternalError(why));
    }
    Ok(Answer::Body {
        code: 200,
        body: from_object(resource, &live.value),
    })
}

/// PUT of the subresource.
pub(crate) fn put(session: &mut Session<'_>) -> Result<Answer, ApiError> {
    let (dry_run, _) = session.request.options()?;
    let scale = super::decode::body(
        &session.request.content_type,
        &session.request.body,
        "Scale",
    )?;
    let live = session.live()?;
    write(session, &live, &scale, dry_run)
}

/// Writes the replicas of `scale` into the object.
pub(crate) fn write(
    session: &mut Session<'_>,
    live: &Arc<Stored>,
    scale: &Value,
    dry_run: bool,
) -> Result<Answer, ApiError> {
    let resource = session.resource().clone();
    let Some(paths) = &resource.scale else {
        return Err(ApiError::NoSuchResource);
    };
    session.check_name(scale)?;
    let replicas = match scale.at("/spec/replicas") {
        Value::Null => 0,
        value => value.as_i64().ok_or_else(|| ApiError::BadRequest("Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32".to_owned()))?,
    };
    if replicas < 0 {
        let about = About::new("autoscaling", "Scale", &session.request.name);
        let cause = Cause::invalid(
            "spec.replicas",
            &json!(replicas),
            "must be greater than or equal to 0",
        );
        return Err(ApiError::Invalid {
            about,
            causes: vec![cause],
        });
    }
    let mut next = live.value.clone();
    next.put("/apiVersion", resource.api_version());
    next.put("/kind", resource.kind.as_str());
    next.put(&paths.spec_replicas, replicas);
    if let Some(version) = scale.pointer("/metadata/resourceVersion") {
        next.put("/metadata/resourceVersion", version.clone());
    }
    // A Scale of 0 does not mention replicas at all, so that no manager owns them after it. From then on the Scale has
    // no managers, and the API server does not begin to record them with an update.
    let ownership = if !managed::is_owned(&live.value, &paths.spec_replicas) {
        Ownership::Applied
    } else if replicas == 0 && live.value.number(&paths.spec_replicas) != Some(0) {
        managed::disown(&mut next, &paths.spec_replicas);
        Ownership::Applied
    } else {
        Ownership::Update
    };
    let stored = session.replace(live, next, ownership, dry_run)?;
    Ok(Answer::Body {
        code: 200,
        body: from_object(&resource, &stored.value),
    })
}
