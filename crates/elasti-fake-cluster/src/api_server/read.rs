//! Get and list: which version, which objects, which page.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::object::Object as _;
use super::request::{ApiRequest, Verb};
use super::selector::Selector;
use super::session::{Answer, Session};
use super::status::{About, ApiError, Cause};
use super::store::{Key, Store, Stored};

pub(crate) const TOO_OLD_PAGE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The request's selectors.
pub(crate) fn selector(request: &ApiRequest) -> Result<Selector, ApiError> {
    Selector::parse(
        &request.resource,
        request.query.get("labelSelector"),
        request.query.get("fieldSelector"),
    )
}

/// Refuses combinations of version parameters that Kubernetes refuses.
pub(crate) fn check_versions(request: &ApiRequest) -> Result<(), ApiError> {
    let refuse = |field: &str, why: &str| {
        let about = About::new("meta.k8s.io", "ListOptions", "");
        Err(ApiError::Invalid {
            about,
            causes: vec![Cause::forbidden(field, why)],
        })
    };
    let query = &request.query;
    let (version, matching, watch) = (
        query.get("resourceVersion"),
        query.get("resourceVersionMatch"),
        request.verb == Verb::Watch,
    );
    if watch && query.flag("sendInitialEvents") && matching != "NotOlderThan" {
        return refuse(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    }
    if !watch && query.flag("sendInitialEvents") {
        return refuse(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        );
    }
    if watch && !matching.is_empty() && !query.flag("sendInitialEvents") {
        return refuse(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }
    if !watch && !matching.is_empty() && version.is_empty() {
        return refuse(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
    }
    if matching == "Exact" && version == "0" {
        return refuse(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        );
    }
    Ok(())
}

/// The version asked for; `None` or 0: any.
pub(crate) fn version(text: &str) -> Result<Option<u64>, String> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax")
        }),
    }
}

impl Session<'_> {
    /// GET of one object, of its status, or of its scale.
    pub(crate) fn get(&self) -> Result<Answer, ApiError> {
        let wanted = version(self.request.query.get("resourceVersion"))
            .map_err(|why| ApiError::BadRequest(format!("invalid resource version: {why}")))?;
        self.not_from_the_future(wanted)?;
        match self.request.subresource.as_str() {
            "scale" => super::scale::get(self),
            _ => Ok(self.answer(200, self.live()?)),
        }
    }

    /// GET of one object as it was at an earlier version (only faults ask for this).
    pub(crate) fn get_at(&self, version: u64) -> Result<Answer, ApiError> {
        let all = self
            .state
            .store
            .list_at(&self.resource().group_resource, None, version)
            .map_err(|_| self.request.not_found())?;
        let found = all
            .into_iter()
            .find(|object| Key::from_object(&object.value) == self.key());
        found
            .map(|object| self.answer(200, object))
            .ok_or_else(|| self.request.not_found())
    }

    fn not_from_the_future(&self, wanted: Option<u64>) -> Result<(), ApiError> {
        let current = self.state.store.version();
        match wanted {
            Some(asked) if asked > current => Err(ApiError::VersionTooLarge { asked, current }),
            _ => Ok(()),
        }
    }

    /// GET of a collection.
    pub(crate) fn list(&self, stale: Option<u64>) -> Result<Answer, ApiError> {
        check_versions(self.request)?;
        let selector = selector(self.request)?;
        let query = &self.request.query;
        let limit = query.number("limit")?.unwrap_or(0).max(0);
        let wanted = version(query.get("resourceVersion"))
            .map_err(|why| ApiError::BadRequest(format!("invalid resource version: {why}")))?;
        self.not_from_the_future(wanted)?;
        let page = match query.get("continue") {
            "" => None,
            token => Some(Page::parse(token)?),
        };
        let exact = wanted.filter(|_| query.get("resourceVersionMatch") == "Exact");
        let at = page.as_ref().map(|page| page.version).or(exact).or(stale);
        let objects = self.objects_at(at)?;
        let start = page.map(|page| page.after);
        let mut chosen = objects.into_iter().filter(|object| {
            start
                .as_ref()
                .is_none_or(|after| Key::from_object(&object.value) > *after)
                && selector.matches(&object.value)
        });
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let items: Vec<Arc<Stored>> = if limit == 0 {
            chosen.by_ref().collect()
        } else {
            chosen.by_ref().take(limit).collect()
        };
        let rest = chosen.count();
        let version = at.unwrap_or(self.state.store.version());
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(last) = items.last().filter(|_| rest > 0) {
            metadata.put(
                "/continue",
                Page {
                    version,
                    after: Key::from_object(&last.value),
                }
                .write(),
            );
            if selector.is_everything() {
                metadata.put("/remainingItemCount", rest);
            }
        }
        Ok(Answer::List { items, metadata })
    }

    fn objects_at(&self, at: Option<u64>) -> Result<Vec<Arc<Stored>>, ApiError> {
        let namespace = Some(self.request.namespace.as_str())
            .filter(|one| self.resource().namespaced && !one.is_empty());
        let (store, group_resource): (&Store, _) =
            (&self.state.store, &self.resource().group_resource);
        match at {
            None => Ok(store.list(group_resource, namespace)),
            Some(version) => store
                .list_at(group_resource, namespace, version)
                .map_err(|_| ApiError::Expired(TOO_OLD_PAGE.to_owned())),
        }
    }
}

/// A continue token: the version of the first page and the last key seen.
struct Page {
    version: u64,
    after: Key,
}

impl Page {
    fn parse(token: &str) -> Result<Self, ApiError> {
        let refuse = |why: &str| {
            ApiError::BadRequest(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(token)
            .map_err(|_| refuse("illegal base64 data at input byte 0"))?;
        let page: Value =
            serde_json::from_slice(&bytes).map_err(|error| refuse(&error.to_string()))?;
        let version = page
            .at("/rv")
            .as_u64()
            .filter(|_| page.text("/v") == "meta.k8s.io/v1");
        let version =
            version.ok_or_else(|| refuse("server does not recognize this encoded version"))?;
        Ok(Self {
            version,
            after: Key::new(page.text("/namespace"), page.text("/start")),
        })
    }

    fn write(&self) -> String {
        let page = json!({"v": "meta.k8s.io/v1", "rv": self.version, "namespace": self.after.namespace, "start": self.after.name});
        URL_SAFE_NO_PAD.encode(page.to_string())
    }
}
