//! The four kinds of patch: JSON, merge, strategic, apply.

use serde_json::{Value, json};

use super::apply::fields::{FieldSet, Step};
use super::apply::managed::{self, Writer};
use super::decode;
use super::kinds;
use super::object::Object as _;
use super::scale;
use super::schema::{Form, ListType, Shape};
use super::session::{Answer, Session};
use super::status::{About, ApiError, Cause};
use super::strategic;
use super::write::{Ownership, shown};

const CUSTOM_PATCHES: &str = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl Session<'_> {
    /// PATCH.
    pub(crate) fn patch(&mut self) -> Result<Answer, ApiError> {
        let apply = self.request.content_type == "application/apply-patch+yaml";
        self.check_patch_options(apply)?;
        if apply {
            return self.apply();
        }
        let (dry_run, validation) = self.request.options()?;
        let patch = self.read_patch()?;
        let live = self.live()?;
        if self.request.subresource == "scale" {
            let mut scaled = scale::from_object(self.resource(), &live.value);
            self.lay_over(&patch, &mut scaled)?;
            return scale::write(self, &live, &scaled, dry_run);
        }
        let mut object = shown(self.resource(), &live);
        self.lay_over(&patch, &mut object)?;
        let text = object.to_string();
        self.conform(&mut object, validation)
            .map_err(|why| patch_refused(&text, &why))?;
        if self.resource().group == "events.k8s.io" {
            kinds::events::to_core(&mut object);
        }
        self.check_name(&object)?;
        self.place(&mut object)?;
        let stored = self.replace(&live, object, Ownership::Update, dry_run)?;
        Ok(self.answer(200, stored))
    }

    fn check_patch_options(&self, apply: bool) -> Result<(), ApiError> {
        let refuse = |cause| ApiError::Invalid {
            about: About::new("meta.k8s.io", "PatchOptions", ""),
            causes: vec![cause],
        };
        if apply && self.request.query.get("fieldManager").is_empty() {
            return Err(refuse(Cause::required(
                "fieldManager",
                "is required for apply patch",
            )));
        }
        if !apply && self.request.query.flag("force") {
            return Err(refuse(Cause::forbidden(
                "force",
                "may not be specified for non-apply patch",
            )));
        }
        Ok(())
    }

    fn read_patch(&self) -> Result<Value, ApiError> {
        match self.request.content_type.as_str() {
            "application/strategic-merge-patch+json" if self.resource().custom.is_some() => {
                return Err(ApiError::UnsupportedMediaType(CUSTOM_PATCHES));
            }
            "application/json-patch+json"
            | "application/merge-patch+json"
            | "application/strategic-merge-patch+json" => {}
            _ => {
                return Err(ApiError::UnsupportedMediaType(
                    "415: Unsupported Media Type",
                ));
            }
        }
        decode::json(&self.request.body)
            .map_err(|why| ApiError::BadRequest(format!("error decoding patch: {why}")))
    }

    /// Applies the patch to `object` by the request's media type.
    fn lay_over(&self, patch: &Value, object: &mut Value) -> Result<(), ApiError> {
        match self.request.content_type.as_str() {
            "application/json-patch+json" => {
                if !patch.is_array() {
                    let why = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
                    return Err(ApiError::BadRequest(why.to_owned()));
                }
                let patch: json_patch::Patch =
                    serde_json::from_value(patch.clone()).map_err(|error| {
                        ApiError::BadRequest(format!("error decoding patch: {error}"))
                    })?;
                json_patch(object, &patch)
            }
            "application/merge-patch+json" => {
                json_patch::merge(object, patch);
                Ok(())
            }
            _ => {
                let shape = if self.request.subresource == "scale" {
                    Shape::any()
                } else {
                    self.resource().shape()
                };
                strategic::patch(object, patch, shape);
                Ok(())
            }
        }
    }

    /// Server-side apply.
    fn apply(&mut self) -> Result<Answer, ApiError> {
        let (dry_run, _) = self.request.options()?;
        let applied = self.read_applied()?;
        let force = self.request.query.flag("force");
        let resource = self.resource().clone();
        let (manager, api_version, time) = (
            self.request.manager(),
            resource.api_version(),
            self.context.timestamp(),
        );
        let writer = Writer {
            manager: &manager,
            api_version: &api_version,
            subresource: &self.request.subresource,
            time: &time,
        };
        match self.live() {
            Ok(live) => {
                let mut old = live.value.clone();
                old.put("/apiVersion", resource.api_version());
                old.put("/kind", resource.kind.as_str());
                let uid = applied.text("/metadata/uid");
                if !uid.is_empty() && uid != old.text("/metadata/uid") {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and the existing object is {}",
                        old.text("/metadata/uid")
                    );
                    return Err(ApiError::Conflict {
                        about: self.request.about(),
                        why,
                    });
                }
                let next = managed::after_apply(
                    &old,
                    &applied,
                    &self.ignored(),
                    resource.shape(),
                    writer,
                    force,
                )?;
                let stored = self.replace(&live, next, Ownership::Applied, dry_run)?;
                if self.request.subresource == "scale" {
                    return Ok(Answer::Body {
                        code: 200,
                        body: scale::from_object(&resource, &stored.value),
                    });
                }
                Ok(self.answer(200, stored))
            }
            Err(missing) if !self.request.subresource.is_empty() => Err(missing),
            Err(_) => {
                let next = managed::after_apply(
                    &json!({}),
                    &applied,
                    &self.ignored(),
                    resource.shape(),
                    writer,
                    force,
                )?;
                let stored = self.insert(next, Ownership::Applied, dry_run)?;
                Ok(self.answer(201, stored))
            }
        }
    }

    fn read_applied(&mut self) -> Result<Value, ApiError> {
        let resource = self.resource().clone();
        let mut applied = decode::yaml(&self.request.body)
            .map_err(|why| ApiError::BadRequest(format!("error decoding YAML: {why}")))?;
        if !applied.list("/metadata/managedFields").is_empty() {
            return Err(ApiError::BadRequest(
                "metadata.managedFields must be nil".to_owned(),
            ));
        }
        if self.request.subresource == "scale" {
            applied = scale::as_parent(&resource, &applied);
        }
        let (version, kind) = (
            applied.text("/apiVersion").to_owned(),
            applied.text("/kind").to_owned(),
        );
        if version.is_empty() || kind.is_empty() {
            return Err(ApiError::BadRequest(format!(
                "invalid object type: /{version}, Kind={kind}"
            )));
        }
        decode::expect_kind(
            &mut applied,
            &resource.api_version(),
            &resource.kind,
            resource.custom.is_some(),
        )?;
        if applied.text("/metadata/name").is_empty() {
            applied.put("/metadata/name", self.request.name.as_str());
        }
        self.check_name(&applied)?;
        if let Err(why) = typed(&applied, resource.shape(), "") {
            let group_version = if resource.group.is_empty() {
                format!("/{}", resource.version)
            } else {
                resource.api_version()
            };
            let (namespace, name) = (
                applied.text("/metadata/namespace"),
                applied.text("/metadata/name"),
            );
            let text = format!(
                "failed to create typed patch object ({namespace}/{name}; {group_version}, Kind={kind}): {why}"
            );
            return Err(ApiError::Internal(text));
        }
        if resource.group == "events.k8s.io" {
            kinds::events::to_core(&mut applied);
        }
        self.place(&mut applied)?;
        Ok(applied)
    }

    /// Fields that this subresource drops, and so no manager owns through it.
    fn ignored(&self) -> FieldSet {
        let mut set = FieldSet::default();
        let resource = self.resource();
        let field = |name: &str| Step::Field(name.to_owned());
        match self.request.subresource.as_str() {
            "status" => {
                set.insert(&[field("spec")]);
                if resource.custom.is_some() {
                    set.insert(&[field("metadata"), field("labels")]);
                    set.insert(&[field("metadata"), field("annotations")]);
                }
            }
            "" if resource.status && !resource.is("", "nodes") => set.insert(&[field("status")]),
            _ => {}
        }
        set
    }
}

/// JSON patch as Go's library reads it: testing an absent field for null succeeds.
fn json_patch(object: &mut Value, patch: &[json_patch::PatchOperation]) -> Result<(), ApiError> {
    for operation in patch {
        if let json_patch::PatchOperation::Test(test) = operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(object, std::slice::from_ref(operation))
            .map_err(|_| ApiError::PatchDoesNotApply)?;
    }
    Ok(())
}

fn patch_refused(patched: &str, why: &str) -> ApiError {
    let message = format!("Invalid value: {}: {why}", Value::from(patched));
    ApiError::Invalid {
        about: About::default(),
        causes: vec![Cause::new("FieldValueInvalid", "patch", message)],
    }
}

/// Applied configurations must fit the schema in every field.
fn typed(value: &Value, shape: Shape<'_>, path: &str) -> Result<(), String> {
    match (value, shape.form()) {
        (Value::Null, _) | (_, Form::Any) => Ok(()),
        (Value::Object(map), Form::Struct | Form::Map) => {
            map.iter().try_for_each(|(name, child)| {
                let here = format!("{path}.{name}");
                match shape.field(name) {
                    Some(inner) => typed(child, inner, &here),
                    None => Err(format!("{here}: field not declared in schema")),
                }
            })
        }
        (Value::Array(items), Form::List) => {
            let list_type = shape.list_type();
            let mut seen = Vec::new();
            for (at, item) in items.iter().enumerate() {
                typed(item, shape.item(), &format!("{path}[{at}]"))?;
                if list_type == ListType::Atomic {
                    continue;
                }
                let step = Step::to_item(&list_type, shape, item)
                    .ok_or_else(|| format!("{path}: element {at}: associative list with keys has an element that omits key field {:?} (and doesn't have default value)", first_key(&list_type)))?;
                if seen.contains(&step) {
                    return Err(format!(
                        "{path}: duplicate entries for key {}",
                        key_text(&step)
                    ));
                }
                seen.push(step);
            }
            Ok(())
        }
        (value, Form::Scalar) if fits(value, shape) => Ok(()),
        (value, form) => Err(format!(
            "{path}: expected {}, got &value.valueUnstructured{{Value:{value}}}",
            wanted(form, shape)
        )),
    }
}

fn first_key(list: &ListType) -> &str {
    match list {
        ListType::Map(keys) => keys.first().map_or("", String::as_str),
        _ => "",
    }
}

fn key_text(step: &Step) -> String {
    let mut set = FieldSet::default();
    set.insert(std::slice::from_ref(step));
    set.paths().concat()
}

fn fits(value: &Value, shape: Shape<'_>) -> bool {
    match shape.scalar_type().0 {
        "string" => value.is_string(),
        "integer" | "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => value.is_string() || value.is_number() || value.is_boolean(),
    }
}

fn wanted(form: Form, shape: Shape<'_>) -> &str {
    match form {
        Form::Struct | Form::Map => "map",
        Form::List => "list",
        _ => match shape.scalar_type().0 {
            "integer" | "number" => "numeric",
            other => other,
        },
    }
}
