//! Rules for requests that the resolver answers itself while the service is asleep.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One rule: path, headers, query parameters and method must all match; what is omitted matches
/// everything.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResponse {
    /// Match on the path. If omitted, every path matches. Example: `{type: Exact, value: /healthz}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// Matches on headers, at most 16; all must hold. Example:
    /// `{name: User-Agent, type: RegularExpression, value: "GoogleHC/.*"}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<HeaderMatch>,
    /// Matches on query parameters, at most 16; all must hold. Example: `{name: probe, value: "1"}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub query_params: Vec<QueryParamMatch>,
    /// Match on the method. If omitted, every method matches. Example: `GET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The response to a request that matches.
    pub response: ProbeAnswer,
}

/// A match on the path.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct PathMatch {
    /// `Exact` compares the whole path, `PathPrefix` whole path elements from the start (`/a` matches
    /// `/a/b`, not `/ab`), `RegularExpression` finds a regular expression anywhere in the path (anchor it with `^` and `$`). Default:
    /// `PathPrefix`.
    #[serde(rename = "type", default)]
    pub type_: PathMatchType,
    /// The path or the regular expression, at most 1024 characters. Default: `/`.
    #[serde(default = "slash")]
    #[schemars(length(max = 1024))]
    pub value: String,
}

fn slash() -> String {
    "/".into()
}

/// How a path is compared.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum PathMatchType {
    /// The whole path.
    Exact,
    /// Whole path elements from the start.
    #[default]
    PathPrefix,
    /// A regular expression, found anywhere in the path.
    RegularExpression,
}

/// A match on one header.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct HeaderMatch {
    /// Name of the header, in upper or lower case. Example: `User-Agent`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// `Exact` for the whole value, or `RegularExpression`, found anywhere in it. Default: `Exact`.
    #[serde(rename = "type", default)]
    pub type_: ValueMatchType,
    /// The value or the regular expression, at most 4096 characters.
    #[schemars(length(max = 4096))]
    pub value: String,
}

/// A match on one query parameter.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct QueryParamMatch {
    /// Name of the parameter. Example: `probe`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// `Exact` for the whole value, or `RegularExpression`, found anywhere in it. Default: `Exact`.
    #[serde(rename = "type", default)]
    pub type_: ValueMatchType,
    /// The value or the regular expression, at most 1024 characters.
    #[schemars(length(max = 1024))]
    pub value: String,
}

/// How a header or a query parameter is compared.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum ValueMatchType {
    /// The whole value.
    #[default]
    Exact,
    /// A regular expression, found anywhere in the value.
    RegularExpression,
}

/// The nine HTTP methods.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "the names say all there is to say")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
}

impl Method {
    /// The method as in a request line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
        }
    }
}

/// The answer to a request that matches.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct ProbeAnswer {
    /// HTTP status of the answer: 200, 204, 400, 401, 403, 404, 500, 502, 503 or 504.
    #[schemars(extend("enum" = [200, 204, 400, 401, 403, 404, 500, 502, 503, 504]))]
    pub status: u16,
    /// Body of the answer. Default: empty. Example: `{"ok":true}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}
