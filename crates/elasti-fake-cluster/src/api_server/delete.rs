//! Delete and deletecollection: preconditions, grace, finalizers, propagation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::decode;
use super::kinds;
use super::object::Object as _;
use super::read;
use super::session::{Answer, Session, quoted};
use super::status::{About, ApiError, Cause};
use super::store::{Key, Stored};
use crate::timestamp::rfc3339_after;

/// What of DeleteOptions the server follows.
#[derive(Clone, Debug, Default)]
struct Options {
    grace_seconds: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
    propagation: Option<String>,
    dry_run: bool,
}

/// How far a deletion came.
enum Deleted {
    Gone(Arc<Stored>),
    Going(Arc<Stored>),
}

const POLICIES: &[&str] = &["Foreground", "Background", "Orphan", "nil"];

impl Session<'_> {
    /// DELETE of one object.
    pub(crate) fn delete(&mut self) -> Result<Answer, ApiError> {
        let options = self.delete_options()?;
        let live = self.live()?;
        self.check_deletable()?;
        let about = About::new(
            &self.resource().group,
            &self.resource().kind,
            &self.request.name,
        );
        check_preconditions(&live.value, &options, about)?;
        match self.delete_one(&live, &options) {
            Deleted::Going(object) => Ok(self.answer(200, object)),
            Deleted::Gone(object) if kinds::returns_deleted(self.resource()) => {
                Ok(self.answer(200, object))
            }
            Deleted::Gone(object) => Ok(Answer::Body {
                code: 200,
                body: self.success(&object.value),
            }),
        }
    }

    /// DELETE of a collection.
    pub(crate) fn delete_collection(&mut self) -> Result<Answer, ApiError> {
        let options = self.delete_options()?;
        let selector = read::selector(self.request)?;
        let namespace =
            Some(self.request.namespace.as_str()).filter(|_| self.resource().namespaced);
        let all = self
            .state
            .store
            .list(&self.resource().group_resource, namespace);
        let chosen: Vec<Arc<Stored>> = all
            .into_iter()
            .filter(|object| selector.matches(&object.value))
            .collect();
        for object in &chosen {
            self.delete_one(object, &options);
        }
        let metadata = json!({"resourceVersion": self.state.store.version().to_string()});
        Ok(Answer::List {
            items: chosen,
            metadata,
        })
    }

    fn success(&self, object: &Value) -> Value {
        let resource = self.resource();
        let mut details = json!({"name": object.text("/metadata/name"), "kind": resource.plural, "uid": object.text("/metadata/uid")});
        if !resource.group.is_empty() {
            details.put("/group", resource.group.as_str());
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }

    fn check_deletable(&self) -> Result<(), ApiError> {
        let protected =
            ["default", "kube-system", "kube-public"].contains(&self.request.name.as_str());
        if !protected || !self.resource().is("", "namespaces") {
            return Ok(());
        }
        let about = self.request.about();
        let message = format!(
            "{} is forbidden: this namespace may not be deleted",
            quoted(&about)
        );
        Err(ApiError::Forbidden {
            about,
            message,
            causes: vec![],
        })
    }

    fn delete_options(&self) -> Result<Options, ApiError> {
        let body = if self.request.body.is_empty() {
            json!({})
        } else {
            decode::body(
                &self.request.content_type,
                &self.request.body,
                "DeleteOptions",
            )?
        };
        let kind = body.text("/kind");
        if !kind.is_empty() && kind != "DeleteOptions" {
            let why = format!(
                "no kind \"{kind}\" is registered for version \"meta.k8s.io/v1\" in scheme \"pkg/runtime/scheme.go:110\""
            );
            return Err(ApiError::Internal(why));
        }
        let text = |pointer: &str| {
            Some(body.text(pointer))
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let asked = self.request.query.get("propagationPolicy");
        let mut propagation =
            text("/propagationPolicy").or_else(|| (!asked.is_empty()).then(|| asked.to_owned()));
        if body.at("/orphanDependents") == true
            || self.request.query.get("orphanDependents") == "true"
        {
            propagation = Some("Orphan".to_owned());
        }
        if let Some(policy) = propagation
            .as_deref()
            .filter(|policy| !POLICIES.contains(policy))
        {
            let cause = Cause::unsupported("propagationPolicy", &policy.into(), POLICIES);
            return Err(ApiError::Invalid {
                about: About::new("meta.k8s.io", "DeleteOptions", ""),
                causes: vec![cause],
            });
        }
        let (dry_run, _) = self.request.options()?;
        Ok(Options {
            grace_seconds: body
                .number("/gracePeriodSeconds")
                .or(self.request.query.number("gracePeriodSeconds")?),
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
            propagation,
            dry_run: dry_run || body.list("/dryRun").iter().any(|one| one == "All"),
        })
    }

    /// Says in the object that it is being deleted.
    fn mark_deleted(&self, object: &mut Value, grace_seconds: i64, already_going: bool) {
        let at = rfc3339_after(self.context.clock.now(), grace_seconds);
        object.put("/metadata/deletionTimestamp", at);
        object.put("/metadata/deletionGracePeriodSeconds", grace_seconds);
        if let Some(generation) = object
            .number("/metadata/generation")
            .filter(|_| !already_going)
        {
            object.put("/metadata/generation", generation + 1);
        }
    }

    fn delete_one(&mut self, live: &Arc<Stored>, options: &Options) -> Deleted {
        let resource = self.resource().clone();
        let mut next = live.value.clone();
        let already_going = next.at("/metadata/deletionTimestamp").is_string();
        let grace = if resource.is("", "pods") {
            pod_grace(&next, options.grace_seconds)
        } else {
            0
        };
        let mut finalizers = deletion_finalizers(&next, options.propagation.as_deref());
        super::definitions::hold(&resource, &mut finalizers);
        next.put("/metadata/finalizers", finalizers.clone());
        if finalizers.is_empty() {
            next.drop_at("/metadata/finalizers");
        }
        let held = !finalizers.is_empty()
            || resource.is("", "namespaces") && !next.list("/spec/finalizers").is_empty();
        if !held && grace == 0 {
            if resource.is("", "pods") {
                self.mark_deleted(&mut next, 0, already_going);
            }
            let gone = if options.dry_run {
                Some(live.clone())
            } else {
                self.remove(&resource, &Key::from_object(&live.value), Some(next))
            };
            return Deleted::Gone(gone.unwrap_or_else(|| live.clone()));
        }
        let shorter = next
            .number("/metadata/deletionGracePeriodSeconds")
            .is_none_or(|known| grace < known);
        if !already_going || shorter {
            self.mark_deleted(&mut next, grace, already_going);
            if resource.is("", "namespaces") {
                next.drop_at("/metadata/deletionGracePeriodSeconds");
            }
        }
        if resource.is("", "namespaces") {
            next.put("/status/phase", "Terminating");
        }
        if next == live.value || options.dry_run {
            return Deleted::Going(live.clone());
        }
        let stored = self.state.store.put(&resource.group_resource, next);
        super::definitions::start_deletion(self, &resource, &stored);
        let current = self
            .state
            .store
            .get(&resource.group_resource, &Key::from_object(&stored.value));
        current.map_or_else(
            || Deleted::Gone(stored.clone()),
            |_| Deleted::Going(stored.clone()),
        )
    }
}

/// How long a pod may take: never if it runs nowhere or has ended.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let nowhere = pod.text("/spec/nodeName").is_empty();
    let ended = matches!(pod.text("/status/phase"), "Failed" | "Succeeded");
    if nowhere || ended {
        return 0;
    }
    asked
        .or(pod.number("/spec/terminationGracePeriodSeconds"))
        .unwrap_or(30)
        .max(0)
}

fn deletion_finalizers(object: &Value, policy: Option<&str>) -> Vec<Value> {
    let mut all = object.list("/metadata/finalizers").to_vec();
    let wanted = match policy {
        Some("Foreground") => Some("foregroundDeletion"),
        Some("Orphan") => Some("orphan"),
        Some(_) => None,
        // Without a policy, finalizers of an earlier deletion stay.
        None => return all,
    };
    all.retain(|one| one != "foregroundDeletion" && one != "orphan");
    if let Some(name) = wanted {
        all.push(name.into());
    }
    all
}

fn check_preconditions(live: &Value, options: &Options, about: About) -> Result<(), ApiError> {
    let known = live.text("/metadata/uid");
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != known) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({known}). The object might have been deleted and then recreated"
        );
        return Err(ApiError::Conflict { about, why });
    }
    let known = live.text("/metadata/resourceVersion");
    if let Some(version) = options
        .version
        .as_deref()
        .filter(|version| *version != known)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({known}). The object might have been modified"
        );
        return Err(ApiError::Conflict { about, why });
    }
    Ok(())
}
