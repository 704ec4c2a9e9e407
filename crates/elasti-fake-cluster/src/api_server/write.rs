//! Create and update.

use std::sync::Arc;

use serde_json::{Value, json};

use super::apply::managed::{self, Writer};
use super::decode::{self, FieldValidation};
use super::kinds;
use super::object::{Object as _, is_empty};
use super::session::{Answer, Session, present, quoted};
use super::status::{About, ApiError, Cause, MODIFIED};
use super::store::{Key, Stored};

/// How ownership of fields is worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// From what changed.
    Update,
    /// Already done by apply.
    Applied,
}

impl Session<'_> {
    /// POST to a collection.
    pub(crate) fn create(&mut self) -> Result<Answer, ApiError> {
        let (dry_run, validation) = self.request.options()?;
        let object = self.read_body(validation)?;
        let stored = self.insert(object, Ownership::Update, dry_run)?;
        Ok(self.answer(201, stored))
    }

    /// PUT.
    pub(crate) fn update(&mut self) -> Result<Answer, ApiError> {
        let (dry_run, validation) = self.request.options()?;
        let object = self.read_body(validation)?;
        self.check_name(&object)?;
        match self.live() {
            Ok(live) => {
                let stored = self.replace(&live, object, Ownership::Update, dry_run)?;
                Ok(self.answer(200, stored))
            }
            Err(_)
                if kinds::creates_on_update(self.resource())
                    && self.request.subresource.is_empty() =>
            {
                let stored = self.insert(object, Ownership::Update, dry_run)?;
                Ok(self.answer(201, stored))
            }
            Err(missing) => Err(missing),
        }
    }

    /// The body as an object of the resource's kind, in stored form.
    fn read_body(&mut self, validation: FieldValidation) -> Result<Value, ApiError> {
        let resource = self.resource();
        let mut object = decode::body(
            &self.request.content_type,
            &self.request.body,
            &resource.kind,
        )?;
        decode::expect_kind(
            &mut object,
            &resource.api_version(),
            &resource.kind,
            resource.custom.is_some(),
        )?;
        let prefix = format!(
            "{} in version \"{}\" cannot be handled as a {}: ",
            resource.kind, resource.version, resource.kind
        );
        self.conform(&mut object, validation)
            .map_err(|why| ApiError::BadRequest(format!("{prefix}{why}")))?;
        if resource.group == "events.k8s.io" {
            kinds::events::to_core(&mut object);
        }
        self.place(&mut object)?;
        Ok(object)
    }

    /// Right types and no unknown fields; the error is Go's text.
    pub(crate) fn conform(
        &mut self,
        object: &mut Value,
        validation: FieldValidation,
    ) -> Result<(), String> {
        let resource = self.resource();
        let mut unknown = decode::conform(object, resource)?;
        if let Some(custom) = &resource.custom {
            let mut pruned = object.clone();
            // Only the names of unknown fields matter here; refusals come later, in order.
            if super::admission::admit(&custom.schema, &mut pruned, None).is_ok() {
                unknown.extend(super::admission::dropped_fields(object, &pruned));
            }
        }
        if unknown.is_empty() || validation == FieldValidation::Ignore {
            return Ok(());
        }
        let texts: Vec<String> = unknown
            .iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect();
        if validation == FieldValidation::Strict {
            return Err(format!("strict decoding error: {}", texts.join(", ")));
        }
        self.warnings.extend(texts);
        Ok(())
    }

    /// The namespace of the object is the one of the path.
    pub(crate) fn place(&self, object: &mut Value) -> Result<(), ApiError> {
        if !self.resource().namespaced {
            object.drop_at("/metadata/namespace");
            return Ok(());
        }
        let inside = object.text("/metadata/namespace");
        if !inside.is_empty() && inside != self.request.namespace {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::BadRequest(why.to_owned()));
        }
        object.put("/metadata/namespace", self.request.namespace.as_str());
        Ok(())
    }

    pub(crate) fn check_name(&self, object: &Value) -> Result<(), ApiError> {
        let (inside, outside) = (object.text("/metadata/name"), &self.request.name);
        if inside == outside {
            return Ok(());
        }
        let why = if inside.is_empty() {
            "name must be provided".to_owned()
        } else {
            format!(
                "the name of the object ({inside}) does not match the name on the URL ({outside})"
            )
        };
        Err(ApiError::BadRequest(why))
    }

    fn writer<'b>(&'b self, manager: &'b str, api_version: &'b str, time: &'b str) -> Writer<'b> {
        // Kubernetes leaves the time out of entries that come through /scale.
        let time = if self.request.subresource == "scale" {
            ""
        } else {
            time
        };
        Writer {
            manager,
            api_version,
            subresource: &self.request.subresource,
            time,
        }
    }

    /// Stores a new object.
    pub(crate) fn insert(
        &mut self,
        mut object: Value,
        ownership: Ownership,
        dry_run: bool,
    ) -> Result<Arc<Stored>, ApiError> {
        let resource = self.resource().clone();
        self.name_new(&mut object);
        let name = object.text("/metadata/name").to_owned();
        self.check_namespace(&name)?;
        if !object.text("/metadata/resourceVersion").is_empty() {
            return Err(ApiError::Internal(
                "resourceVersion should not be set on objects to be created".to_owned(),
            ));
        }
        self.stamp_new(&mut object);
        if resource.custom.is_some() && resource.status {
            object.drop_at("/status");
        }
        self.admit(&mut object, None)?;
        let time = self.context.timestamp();
        if ownership == Ownership::Update {
            let manager = self.request.manager();
            let api_version = resource.api_version();
            let writer = self.writer(&manager, &api_version, &time);
            let mut bare = object.clone();
            bare.drop_at("/status")
                .filter(|_| kinds::initial_status(&resource, &object).is_some());
            managed::after_update(&json!({}), &mut bare, resource.shape(), writer);
            object.put(
                "/metadata/managedFields",
                bare.at("/metadata/managedFields").clone(),
            );
            if is_empty(object.at("/metadata/managedFields")) {
                object.drop_at("/metadata/managedFields");
            }
        }
        if let Some(status) = kinds::initial_status(&resource, &object) {
            object.put("/status", status);
        }
        self.admit_kind(&mut object, None)?;
        self.validate(&object, None)?;
        let key = Key::from_object(&object);
        if self
            .state
            .store
            .get(&resource.group_resource, &key)
            .is_some()
        {
            if resource.is("", "services") {
                self.state.addresses.release(&object);
            }
            return Err(ApiError::AlreadyExists(About::new(
                &resource.group,
                &resource.plural,
                &name,
            )));
        }
        if dry_run {
            return Ok(self.as_if_stored(object));
        }
        let stored = self.state.store.put(&resource.group_resource, object);
        Ok(self.after_write(&stored))
    }

    fn name_new(&self, object: &mut Value) {
        let prefix = object.text("/metadata/generateName").to_owned();
        if object.text("/metadata/name").is_empty() && !prefix.is_empty() {
            let cut: String = prefix.chars().take(58).collect();
            object.put(
                "/metadata/name",
                format!("{cut}{}", self.context.random.suffix()),
            );
        }
    }

    /// What only the server sets.
    fn stamp_new(&self, object: &mut Value) {
        for gone in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "generation",
        ] {
            object.drop_at(&format!("/metadata/{gone}"));
        }
        object.put("/metadata/uid", self.context.random.uid());
        object.put("/metadata/creationTimestamp", self.context.timestamp());
        if kinds::generation_source(self.resource(), object).is_some() {
            object.put("/metadata/generation", 1);
        }
    }

    /// What Kubernetes' admission does for single kinds.
    fn admit_kind(&mut self, object: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        let resource = self.resource();
        if resource.is("", "services") {
            let name = object.text("/metadata/name").to_owned();
            let unchanged_type = kinds::validate(resource, object, old);
            if unchanged_type.is_empty() {
                self.state
                    .addresses
                    .assign(object, old)
                    .map_err(|cause| self.invalid(&name, vec![cause]))?;
            }
        }
        if resource.is("", "namespaces") && old.is_none() {
            object.put("/spec/finalizers", json!(["kubernetes"]));
        }
        if resource.is("", "secrets")
            && let Some(plain) = object.drop_at("/stringData")
        {
            for (key, text) in plain.strings("") {
                let encoded =
                    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
                object.put(&format!("/data/{}", super::object::escape(&key)), encoded);
            }
        }
        if resource.is("", "pods") && old.is_none() {
            kinds::pods::admit(object);
            if self.context.check_service_accounts {
                self.check_service_account(object)?;
            }
        }
        kinds::complete(resource, object);
        Ok(())
    }

    fn check_service_account(&self, pod: &Value) -> Result<(), ApiError> {
        let (namespace, account) = (
            &self.request.namespace,
            pod.text("/spec/serviceAccountName"),
        );
        let group_resource = (String::new(), "serviceaccounts".to_owned());
        if self
            .state
            .store
            .get(&group_resource, &Key::new(namespace, account))
            .is_some()
        {
            return Ok(());
        }
        // A name is generated only after admission, which knows no more than its beginning.
        let (name, prefix) = (
            pod.text("/metadata/name"),
            pod.text("/metadata/generateName"),
        );
        let generated = !prefix.is_empty() && name.starts_with(prefix);
        let about = About::new("", "pods", if generated { prefix } else { name });
        let message = format!(
            "{} is forbidden: error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found",
            quoted(&about)
        );
        Err(ApiError::Forbidden {
            about,
            message,
            causes: vec![],
        })
    }

    /// Stores the next version of an object; the last finalizer gone, the object goes.
    pub(crate) fn replace(
        &mut self,
        live: &Arc<Stored>,
        mut next: Value,
        ownership: Ownership,
        dry_run: bool,
    ) -> Result<Arc<Stored>, ApiError> {
        let resource = self.resource().clone();
        let old = present_stored(&resource, live);
        self.check_version(&old, &next)?;
        self.keep_fixed(&old, &mut next);
        self.admit(&mut next, Some(&old))?;
        self.raise_generation(&old, &mut next);
        if ownership == Ownership::Update {
            let (manager, api_version, time) = (
                self.request.manager(),
                resource.api_version(),
                self.context.timestamp(),
            );
            let writer = self.writer(&manager, &api_version, &time);
            if is_absent(&next, "/metadata/managedFields") {
                next.put(
                    "/metadata/managedFields",
                    old.at("/metadata/managedFields").clone(),
                );
            }
            managed::after_update(&old, &mut next, resource.shape(), writer);
        }
        self.admit_kind(&mut next, Some(&old))?;
        if self.request.subresource != "finalize" {
            self.validate(&next, Some(&old))?;
        }
        if let Some(done) = self.finish_deletion(live, &next, dry_run) {
            return Ok(done);
        }
        if same(&old, &next) {
            return Ok(live.clone());
        }
        if dry_run {
            return Ok(self.as_if_stored(next));
        }
        let stored = self.state.store.put(&resource.group_resource, next);
        Ok(self.after_write(&stored))
    }

    fn check_version(&self, old: &Value, next: &Value) -> Result<(), ApiError> {
        let about = self.request.about();
        let (uid, known) = (next.text("/metadata/uid"), old.text("/metadata/uid"));
        if !uid.is_empty() && uid != known {
            let key = format!(
                "/registry/{}/{}/{}",
                about.kind, self.request.namespace, about.name
            );
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            );
            return Err(ApiError::Conflict { about, why });
        }
        match next.text("/metadata/resourceVersion") {
            "" if kinds::updates_unconditionally(self.resource()) => Ok(()),
            "" => {
                let cause = Cause::new(
                    "FieldValueInvalid",
                    "metadata.resourceVersion",
                    "Invalid value: 0: must be specified for an update",
                );
                Err(ApiError::Invalid {
                    about,
                    causes: vec![cause],
                })
            }
            text if text.parse::<u64>().is_err() => Err(ApiError::Internal(format!(
                "strconv.ParseUint: parsing \"{text}\": invalid syntax"
            ))),
            text if text != old.text("/metadata/resourceVersion") => Err(ApiError::Conflict {
                about,
                why: MODIFIED.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Restores what this subresource may not change: server-set metadata, status here, spec there.
    fn keep_fixed(&self, old: &Value, next: &mut Value) {
        let resource = self.resource();
        for field in [
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generateName",
            "resourceVersion",
        ] {
            restore(next, old, &format!("/metadata/{field}"));
        }
        match self.request.subresource.as_str() {
            "status" if resource.custom.is_some() => {
                let (status, fields) = (
                    next.at("/status").clone(),
                    next.at("/metadata/managedFields").clone(),
                );
                *next = old.clone();
                next.put("/status", status);
                next.put("/metadata/managedFields", fields);
            }
            "status" => {
                for kept in ["/spec", "/data"] {
                    restore(next, old, kept);
                }
                if !resource.is("", "pods") && !resource.is("", "nodes") {
                    restore(next, old, "/metadata/labels");
                }
            }
            "finalize" => {
                let finalizers = next.at("/spec/finalizers").clone();
                *next = old.clone();
                next.put("/spec/finalizers", finalizers);
            }
            _ if resource.status && !resource.is("", "nodes")
                || resource.is("", "nodes") && old.at("/status").is_object() =>
            {
                restore(next, old, "/status");
                if resource.is("", "namespaces") {
                    restore(next, old, "/spec");
                }
            }
            _ => {}
        }
    }

    fn raise_generation(&self, old: &Value, next: &mut Value) {
        if self.request.subresource == "status" {
            return;
        }
        let source = |object: &Value| kinds::generation_source(self.resource(), object);
        if let (Some(before), Some(after)) = (source(old), source(next))
            && before != after
        {
            let generation = old.number("/metadata/generation").unwrap_or(0) + 1;
            next.put("/metadata/generation", generation);
        }
    }

    /// An object that is being deleted goes when nothing holds it back any more.
    fn finish_deletion(
        &mut self,
        live: &Arc<Stored>,
        next: &Value,
        dry_run: bool,
    ) -> Option<Arc<Stored>> {
        let resource = self.resource().clone();
        let going = next.at("/metadata/deletionTimestamp").is_string();
        let held = !next.list("/metadata/finalizers").is_empty()
            || !next.list("/spec/finalizers").is_empty() && resource.is("", "namespaces");
        // A pod goes when its kubelet confirms with grace period 0, not when its finalizers are gone.
        let graceful = next
            .number("/metadata/deletionGracePeriodSeconds")
            .is_some_and(|seconds| seconds > 0);
        if !going || held || graceful || dry_run {
            return None;
        }
        self.remove(
            &resource,
            &Key::from_object(&live.value),
            Some(next.clone()),
        )
    }

    /// A dry run's answer: the object without a version of its own.
    fn as_if_stored(&self, object: Value) -> Arc<Stored> {
        Stored::unversioned(object)
    }
}

fn restore(next: &mut Value, old: &Value, pointer: &str) {
    match old.at(pointer) {
        Value::Null => {
            next.drop_at(pointer);
        }
        value => next.put(pointer, value.clone()),
    }
}

fn is_absent(object: &Value, pointer: &str) -> bool {
    object.at(pointer).is_null()
}

fn same(old: &Value, next: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        object.drop_at("/metadata/resourceVersion");
        prune_empty_fields(&mut object);
        object
    };
    strip(old) == strip(next)
}

/// Absent and null metadata fields are the same.
fn prune_empty_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !is_empty(value));
    }
}

fn present_stored(resource: &super::resources::Resource, live: &Arc<Stored>) -> Value {
    // Inside the server events keep their stored names whatever the API group.
    let mut object = live.value.clone();
    object.put("/apiVersion", resource.api_version());
    object.put("/kind", resource.kind.as_str());
    object
}

/// The object as the subresource shows it, to be patched.
pub(crate) fn shown(resource: &super::resources::Resource, live: &Arc<Stored>) -> Value {
    present(resource, &live.value)
}
