//! Rules for requests that the resolver answers itself while the service is asleep.
//! It never matches a request; `elasti-core` does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One rule: all its matches must hold; the first rule that matches answers.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResponse {
    /// Match on the path; missing means every path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// Matches on headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
    /// Matches on query parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<QueryParamMatch>,
    /// Match on the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The answer.
    pub response: ProbeAnswer,
}

/// A match on the path.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct PathMatch {
    /// How to compare.
    #[serde(rename = "type", default)]
    pub type_: PathMatchType,
    /// What to compare with.
    #[serde(default = "slash")]
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
    /// A regular expression for the whole path.
    RegularExpression,
}

/// A match on one header.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct HeaderMatch {
    /// Name, in any case.
    pub name: String,
    /// How to compare.
    #[serde(rename = "type", default)]
    pub type_: ValueMatchType,
    /// What to compare with.
    pub value: String,
}

/// A match on one query parameter.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct QueryParamMatch {
    /// Name.
    pub name: String,
    /// How to compare.
    #[serde(rename = "type", default)]
    pub type_: ValueMatchType,
    /// What to compare with.
    pub value: String,
}

/// How a header or a query parameter is compared.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum ValueMatchType {
    /// The whole value.
    #[default]
    Exact,
    /// A regular expression for the whole value.
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
    /// The method as it stands in a request line.
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

/// The answer to a probe.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct ProbeAnswer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}
