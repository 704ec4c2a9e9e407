//! What a request asks for: path, query and headers read once.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;

use super::auth::User;
use super::decode::FieldValidation;
use super::resources::{Registry, Resource};
use super::status::{About, ApiError, Cause};

/// The verbs of the API, as authorisation and the journal name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Change an object.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl Verb {
    /// The verb as RBAC spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Does the verb change anything?
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// How the answer is to be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Object,
    Table,
    PartialMetadata,
}

/// The decoded query string.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let decode = |text: &str| {
            percent_decode_str(&text.replace('+', " "))
                .decode_utf8_lossy()
                .into_owned()
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map_or("", |(_, value)| value)
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0
            .iter()
            .any(|(name, value)| name == key && !matches!(value.as_str(), "0" | "false"))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        match self.get(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::BadRequest(format!(
                    "strconv.ParseInt: parsing \"{text}\": invalid syntax"
                ))
            }),
        }
    }
}

/// A request for a resource.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) user: User,
    pub(crate) user_agent: String,
    pub(crate) verb: Verb,
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    pub(crate) query: Query,
    pub(crate) output: Output,
    pub(crate) content_type: String,
    /// The path and the query behind `proxy`.
    pub(crate) beyond: String,
    pub(crate) body: Bytes,
}

/// What a path names.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The path behind `proxy`.
    pub(crate) beyond: String,
}

impl Route {
    /// Reads `/api/v1/…` and `/apis/group/version/…`.
    pub(crate) fn parse(path: &str, registry: &Registry) -> Result<Self, ApiError> {
        let decoded: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(ApiError::NoSuchPath),
        };
        if !registry.groups().contains_key(group) {
            return Err(ApiError::NoSuchPath);
        }
        let find = |plural: &str| {
            registry
                .find(group, version, plural)
                .ok_or(ApiError::NoSuchResource)
        };
        let route = |resource, namespace: &str, name: &str, subresource: &str| Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            beyond: String::new(),
        };
        Ok(match rest {
            [] => return Err(ApiError::NoSuchResource),
            ["namespaces", namespace, plural, more @ ..]
                if find(plural).is_ok_and(|one| one.namespaced) =>
            {
                match more {
                    [] => route(find(plural)?, namespace, "", ""),
                    [name] => route(find(plural)?, namespace, name, ""),
                    [name, "proxy", beyond @ ..] => Self {
                        beyond: format!("/{}", beyond.join("/")),
                        ..route(find(plural)?, namespace, name, "proxy")
                    },
                    [name, subresource] => route(find(plural)?, namespace, name, subresource),
                    _ => return Err(ApiError::NoSuchResource),
                }
            }
            [plural] => route(find(plural)?, "", "", ""),
            [plural, name] if !find(plural)?.namespaced => route(find(plural)?, "", name, ""),
            [plural, name, subresource] if !find(plural)?.namespaced => {
                route(find(plural)?, "", name, subresource)
            }
            _ => return Err(ApiError::NoSuchResource),
        })
    }

    /// The verb that the method means here.
    pub(crate) fn verb(&self, method: &Method, query: &Query) -> Result<Verb, ApiError> {
        let resource = &self.resource;
        if !self.subresource.is_empty() {
            return self.subresource_verb(method);
        }
        let everywhere = resource.namespaced && self.namespace.is_empty();
        let verb = match (method.as_str(), self.name.is_empty()) {
            ("GET" | "HEAD", true) if query.flag("watch") => Verb::Watch,
            ("GET" | "HEAD", true) => Verb::List,
            ("POST", true)
                if !everywhere || resource.allows("create") && !resource.allows("get") =>
            {
                Verb::Create
            }
            ("DELETE", true) if !everywhere => Verb::DeleteCollection,
            ("GET" | "HEAD", false) => Verb::Get,
            ("PUT", false) => Verb::Update,
            ("PATCH", false) => Verb::Patch,
            ("DELETE", false) => Verb::Delete,
            _ => return Err(ApiError::MethodNotAllowed),
        };
        if resource.allows(verb.as_str()) {
            Ok(verb)
        } else {
            Err(ApiError::MethodNotAllowed)
        }
    }

    fn subresource_verb(&self, method: &Method) -> Result<Verb, ApiError> {
        let verb = match method.as_str() {
            "GET" | "HEAD" => Verb::Get,
            "PUT" => Verb::Update,
            "PATCH" => Verb::Patch,
            "POST" => Verb::Create,
            _ => return Err(ApiError::MethodNotAllowed),
        };
        let allowed: &[&str] = match self.subresource.as_str() {
            "status" if self.resource.status => &["get", "patch", "update"],
            "scale" if self.resource.scale.is_some() => &["get", "patch", "update"],
            other => {
                self.resource
                    .subresources
                    .iter()
                    .find(|(name, ..)| *name == other)
                    .ok_or(ApiError::NoSuchResource)?
                    .2
            }
        };
        if allowed.contains(&verb.as_str()) {
            Ok(verb)
        } else {
            Err(ApiError::MethodNotAllowed)
        }
    }
}

/// Picks the rendering from `Accept`; only JSON is served.
pub(crate) fn output(headers: &HeaderMap) -> Result<Output, ApiError> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("*/*");
    for one in accept.split(',') {
        let mut parts = one.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameter = |name: &str| {
            one.split(';')
                .map(str::trim)
                .find_map(|part| part.strip_prefix(name))
                .unwrap_or_default()
        };
        if !matches!(
            media_type,
            "application/json" | "application/*" | "*/*" | ""
        ) {
            continue;
        }
        match (parameter("as="), parameter("g="), parameter("v=")) {
            ("Table", "meta.k8s.io", "v1") => return Ok(Output::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                return Ok(Output::PartialMetadata);
            }
            ("", ..) => return Ok(Output::Object),
            _ => {}
        }
    }
    Err(ApiError::NotAcceptable)
}

impl ApiRequest {
    /// What the answer's `details` name.
    pub(crate) fn about(&self) -> About {
        About::new(&self.resource.group, &self.resource.plural, &self.name)
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::NotFound(self.about())
    }

    /// `fieldManager`, or the first word of the user agent.
    pub(crate) fn manager(&self) -> String {
        match self.query.get("fieldManager") {
            "" => self
                .user_agent
                .split('/')
                .next()
                .unwrap_or("unknown")
                .chars()
                .take(128)
                .collect(),
            named => named.to_owned(),
        }
    }

    /// Checks `dryRun` and `fieldValidation`; returns whether this is a dry run.
    pub(crate) fn options(&self) -> Result<(bool, FieldValidation), ApiError> {
        let kind = match self.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            _ => "DeleteOptions",
        };
        let refuse = |cause| ApiError::Invalid {
            about: About::new("meta.k8s.io", kind, ""),
            causes: vec![cause],
        };
        let dry_run = match self.query.get("dryRun") {
            "" => false,
            "All" => true,
            other => {
                return Err(refuse(Cause::unsupported(
                    "dryRun",
                    &vec![other].into(),
                    &["All"],
                )));
            }
        };
        let validation = match self.query.get("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                return Err(refuse(Cause::unsupported(
                    "fieldValidation",
                    &other.into(),
                    &["", "Ignore", "Strict", "Warn"],
                )));
            }
        };
        Ok((dry_run, validation))
    }
}
