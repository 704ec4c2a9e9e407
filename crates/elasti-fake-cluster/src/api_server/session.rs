//! One request's work under the store's lock: what all verbs share.
//! Never waits: a session lives inside one lock.

use std::sync::Arc;

use serde_json::{Value, json};

use super::admission;
use super::auth::Tokens;
use super::kinds::{self, services::ServiceAddresses};
use super::object::Object as _;
use super::request::{ApiRequest, Output};
use super::resources::{Registry, Resource};
use super::status::{About, ApiError, Cause};
use super::store::{Key, Store, Stored, TypeHeader};
use crate::clock::Clock;
use crate::random::Randomness;
use crate::timestamp::rfc3339;

/// Everything that one lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) addresses: ServiceAddresses,
}

/// What sessions read without changing it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) clock: Clock,
    pub(crate) random: Arc<Randomness>,
    pub(crate) tokens: Tokens,
    pub(crate) enforce_rbac: bool,
    pub(crate) check_service_accounts: bool,
}

impl Context {
    /// Now, as Kubernetes writes it.
    pub(crate) fn timestamp(&self) -> String {
        rfc3339(self.clock.now())
    }
}

/// An answer before it is rendered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A stored object, rendered as the client asked.
    Object { code: u16, object: Arc<Stored> },
    /// A page of a collection.
    List {
        items: Vec<Arc<Stored>>,
        metadata: Value,
    },
    /// A body of its own: reviews, scales, statuses.
    Body { code: u16, body: Value },
}

/// One request being worked on.
pub(crate) struct Session<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) context: &'a Context,
    pub(crate) request: &'a ApiRequest,
    pub(crate) warnings: Vec<String>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(state: &'a mut State, context: &'a Context, request: &'a ApiRequest) -> Self {
        Self {
            state,
            context,
            request,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn resource(&self) -> &'a Arc<Resource> {
        &self.request.resource
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(&self.request.namespace, &self.request.name)
    }

    /// The object that the request names.
    pub(crate) fn live(&self) -> Result<Arc<Stored>, ApiError> {
        self.state
            .store
            .get(&self.resource().group_resource, &self.key())
            .ok_or_else(|| self.request.not_found())
    }

    /// A refusal about the fields of the object.
    pub(crate) fn invalid(&self, name: &str, causes: Vec<Cause>) -> ApiError {
        ApiError::Invalid {
            about: About::new(&self.resource().group, &self.resource().kind, name),
            causes,
        }
    }

    /// Types, unknown fields, defaults and, for custom resources, the whole schema.
    pub(crate) fn admit(&self, object: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        let resource = self.resource();
        match &resource.custom {
            None => kinds::default(resource, object),
            Some(custom) => {
                let name = object.text("/metadata/name").to_owned();
                admission::admit(&custom.schema, object, old)
                    .map_err(|causes| self.invalid(&name, causes))?;
            }
        }
        Ok(())
    }

    /// Kubernetes' validation of built-in kinds, and of every kind's metadata.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let causes = kinds::validate(self.resource(), object, old);
        if causes.is_empty() {
            Ok(())
        } else {
            Err(self.invalid(object.text("/metadata/name"), causes))
        }
    }

    /// Answers with an object that was or would have been stored.
    pub(crate) fn answer(&self, code: u16, object: Arc<Stored>) -> Answer {
        Answer::Object { code, object }
    }

    /// Runs what the server itself does after a write: registering definitions, freeing addresses.
    pub(crate) fn after_write(&mut self, object: &Arc<Stored>) -> Arc<Stored> {
        if self
            .resource()
            .is("apiextensions.k8s.io", "customresourcedefinitions")
        {
            return super::definitions::sync(self, object);
        }
        object.clone()
    }

    /// Removes an object for good.
    pub(crate) fn remove(
        &mut self,
        resource: &Resource,
        key: &Key,
        last: Option<Value>,
    ) -> Option<Arc<Stored>> {
        let gone = self
            .state
            .store
            .remove(&resource.group_resource, key, last)?;
        if resource.is("", "services") {
            self.state.addresses.release(&gone.value);
        }
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            let (group, plural) = (
                gone.value.text("/spec/group"),
                gone.value.text("/spec/names/plural"),
            );
            self.state.registry.set_custom(group, plural, Vec::new());
        }
        if resource.custom.is_some() {
            super::definitions::finish_deletion(self, resource);
        }
        Some(gone)
    }

    /// Nothing is created where the namespace is missing or going.
    pub(crate) fn check_namespace(&self, name: &str) -> Result<(), ApiError> {
        if !self.resource().namespaced {
            return Ok(());
        }
        let namespace = &self.request.namespace;
        let group_resource = (String::new(), "namespaces".to_owned());
        let Some(stored) = self
            .state
            .store
            .get(&group_resource, &Key::new("", namespace))
        else {
            return Err(ApiError::NotFound(About::new("", "namespaces", namespace)));
        };
        if stored.value.text("/status/phase") != "Terminating" {
            return Ok(());
        }
        let about = About {
            name: name.to_owned(),
            ..self.request.about()
        };
        Err(ApiError::Forbidden {
            message: format!(
                "{} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
                quoted(&about)
            ),
            causes: vec![Cause::new(
                "NamespaceTerminating",
                "metadata.namespace",
                format!("namespace {namespace} is being terminated"),
            )],
            about,
        })
    }
}

/// `pods "x"`, or `deployments.apps` without a name.
pub(crate) fn quoted(about: &About) -> String {
    let kind = if about.group.is_empty() {
        about.kind.clone()
    } else {
        format!("{}.{}", about.kind, about.group)
    };
    if about.name.is_empty() {
        kind
    } else {
        format!("{kind} \"{}\"", about.name)
    }
}

/// The names under which a resource shows its objects.
pub(crate) fn header(resource: &Resource) -> TypeHeader {
    TypeHeader::new(&resource.api_version(), &resource.kind)
}

/// A stored object as the resource shows it, with apiVersion and kind.
pub(crate) fn present(resource: &Resource, stored: &Value) -> Value {
    let mut object = stored.clone();
    if resource.group == "events.k8s.io" {
        kinds::events::from_core(&mut object);
    }
    object.put("/apiVersion", resource.api_version());
    object.put("/kind", resource.kind.as_str());
    object
}

/// The metadata-only form.
pub(crate) fn partial_metadata(stored: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored.at("/metadata")})
}

/// Does this rendering show stored bytes as they are?
pub(crate) fn shows_stored_bytes(output: Output, resource: &Resource) -> bool {
    output == Output::Object && resource.group != "events.k8s.io"
}
