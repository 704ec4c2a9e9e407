//! Requests that are not stored: tokens, token reviews, access reviews, bindings and evictions.

use bytes::Bytes;
use serde_json::{Value, json};

use super::auth::User;
use super::decode;
use super::object::Object as _;
use super::rbac::{self, Access};
use super::selector::Selector;
use super::session::{Answer, Session};
use super::signing::ISSUER;
use super::status::{About, ApiError, Cause};
use super::write::Ownership;

impl Session<'_> {
    /// POST to a kind that only answers.
    pub(crate) fn review(&mut self) -> Result<Answer, ApiError> {
        let resource = self.resource().clone();
        let mut review = decode::body(
            &self.request.content_type,
            &self.request.body,
            &resource.kind,
        )?;
        decode::expect_kind(&mut review, &resource.api_version(), &resource.kind, false)?;
        let status = match resource.plural.as_str() {
            "tokenreviews" => self.review_token(&review),
            "selfsubjectaccessreviews" => self.review_access(&review, &self.request.user.clone()),
            _ => {
                let user = subject(&review)?;
                self.review_access(&review, &user)
            }
        };
        review.put_default("/metadata", json!({}));
        review.put("/status", status);
        Ok(Answer::Body {
            code: 201,
            body: review,
        })
    }

    fn review_token(&self, review: &Value) -> Value {
        let audiences: Vec<String> = review
            .list("/spec/audiences")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let tokens = &self.context.tokens;
        match tokens.review(
            review.text("/spec/token"),
            &audiences,
            &self.state.store,
            self.context.clock,
        ) {
            Ok((user, audiences)) => {
                json!({"authenticated": true, "user": user.to_json(), "audiences": audiences})
            }
            Err(why) => json!({"user": {}, "error": why.0}),
        }
    }

    fn review_access(&self, review: &Value, user: &User) -> Value {
        let attributes = review.at("/spec/resourceAttributes");
        let path = review.at("/spec/nonResourceAttributes");
        let access = Access {
            verb: if path.is_object() {
                path.text("/verb")
            } else {
                attributes.text("/verb")
            },
            group: attributes.text("/group"),
            resource: attributes.text("/resource"),
            subresource: attributes.text("/subresource"),
            namespace: attributes.text("/namespace"),
            name: attributes.text("/name"),
            path: path.is_object().then(|| path.text("/path")),
        };
        match rbac::allows(&self.state.store, user, &access) {
            Some(why) if why.is_empty() => json!({"allowed": true}),
            Some(why) => json!({"allowed": true, "reason": why}),
            None => json!({"allowed": false}),
        }
    }

    /// POST to a subresource.
    pub(crate) fn create_in_subresource(&mut self) -> Result<Answer, ApiError> {
        match self.request.subresource.as_str() {
            "token" => self.request_token(),
            "binding" => self.bind(),
            _ => self.evict(),
        }
    }

    /// TokenRequest.
    fn request_token(&mut self) -> Result<Answer, ApiError> {
        let account = self.live()?;
        let mut asked = decode::body(
            &self.request.content_type,
            &self.request.body,
            "TokenRequest",
        )?;
        let seconds = asked.number("/spec/expirationSeconds").unwrap_or(3600);
        if seconds < 600 {
            let about = About::new("authentication.k8s.io", "TokenRequest", "");
            let cause = Cause::invalid(
                "spec.expirationSeconds",
                &json!(seconds),
                "may not specify a duration less than 10 minutes",
            );
            return Err(ApiError::Invalid {
                about,
                causes: vec![cause],
            });
        }
        let mut audiences: Vec<String> = asked
            .list("/spec/audiences")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        let id = self.context.random.uid();
        let (token, expires) =
            self.context
                .tokens
                .issue(&account.value, &audiences, seconds, &id, self.context.clock);
        asked.put("/kind", "TokenRequest");
        asked.put("/apiVersion", "authentication.k8s.io/v1");
        for field in ["name", "namespace", "uid"] {
            asked.put(
                &format!("/metadata/{field}"),
                account.value.at(&format!("/metadata/{field}")).clone(),
            );
        }
        asked.put("/metadata/creationTimestamp", self.context.timestamp());
        asked.put("/spec/audiences", json!(audiences));
        asked.put("/spec/expirationSeconds", seconds);
        asked.put_default("/spec/boundObjectRef", Value::Null);
        asked.put(
            "/status",
            json!({"token": token, "expirationTimestamp": expires}),
        );
        Ok(Answer::Body {
            code: 201,
            body: asked,
        })
    }

    /// Puts a pod on a node.
    fn bind(&mut self) -> Result<Answer, ApiError> {
        let live = self.live()?;
        let binding = decode::body(&self.request.content_type, &self.request.body, "Binding")?;
        let node = live.value.text("/spec/nodeName");
        if !node.is_empty() {
            let why = format!(
                "pod {} is already assigned to node \"{node}\"",
                self.request.name
            );
            return Err(ApiError::Conflict {
                about: About::new("", "pods/binding", &self.request.name),
                why,
            });
        }
        let mut next = live.value.clone();
        next.put("/spec/nodeName", binding.text("/target/name"));
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.context.timestamp()});
        let mut conditions: Vec<Value> = next
            .list("/status/conditions")
            .iter()
            .filter(|one| one.text("/type") != "PodScheduled")
            .cloned()
            .collect();
        conditions.push(scheduled);
        next.put("/status/conditions", conditions);
        self.state.store.put(&self.resource().group_resource, next);
        Ok(Answer::Body {
            code: 201,
            body: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        })
    }

    /// Deletes a pod unless a disruption budget forbids it.
    fn evict(&mut self) -> Result<Answer, ApiError> {
        let live = self.live()?;
        let group_resource = ("policy".to_owned(), "poddisruptionbudgets".to_owned());
        let budgets = self
            .state
            .store
            .list(&group_resource, Some(&self.request.namespace));
        for budget in budgets
            .iter()
            .filter(|one| Selector::from_spec(one.value.at("/spec/selector")).matches(&live.value))
        {
            if budget
                .value
                .number("/status/disruptionsAllowed")
                .unwrap_or(0)
                <= 0
            {
                let message = format!(
                    "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget {} needs more healthy pods",
                    budget.value.text("/metadata/name")
                );
                return Err(ApiError::Evicted { message });
            }
        }
        let mut inner = self.request.clone();
        inner.subresource = String::new();
        inner.verb = super::request::Verb::Delete;
        let eviction: Value = serde_json::from_slice(&self.request.body).unwrap_or_default();
        let options = eviction.at("/deleteOptions");
        inner.body = if options.is_object() {
            options.to_string().into()
        } else {
            Bytes::new()
        };
        Session::new(self.state, self.context, &inner).delete()?;
        Ok(Answer::Body {
            code: 201,
            body: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        })
    }

    /// PUT of `/finalize`: what the namespace controller does last.
    pub(crate) fn finalize(&mut self) -> Result<Answer, ApiError> {
        let live = self.live()?;
        let body = decode::body(&self.request.content_type, &self.request.body, "Namespace")?;
        let mut next = live.value.clone();
        next.put("/apiVersion", "v1");
        next.put("/kind", "Namespace");
        next.put("/spec/finalizers", body.list("/spec/finalizers").to_vec());
        let stored = self.replace(&live, next, Ownership::Update, false)?;
        Ok(self.answer(200, stored))
    }
}

fn subject(review: &Value) -> Result<User, ApiError> {
    let mut groups: Vec<String> = review
        .list("/spec/groups")
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let name = review.text("/spec/user");
    if name.is_empty() && groups.is_empty() {
        let cause = Cause::invalid(
            "spec.user",
            &json!(""),
            "at least one of user or group must be specified",
        );
        return Err(ApiError::Invalid {
            about: About::new("authorization.k8s.io", "", ""),
            causes: vec![cause],
        });
    }
    if name.starts_with("system:serviceaccount:") && groups.is_empty() {
        groups.push("system:serviceaccounts".to_owned());
    }
    Ok(User {
        name: name.to_owned(),
        uid: review.text("/spec/uid").to_owned(),
        groups,
        credential: None,
    })
}
