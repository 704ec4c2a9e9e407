//! Authentication: the admin token and service-account tokens.

use serde_json::{Value, json};

use super::object::Object as _;
use super::signing::{ISSUER, SigningKeys};
use super::store::{Key, Store};
use crate::clock::Clock;
use crate::timestamp::rfc3339;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// For instance `system:serviceaccount:shop:default`.
    pub name: String,
    /// The account's uid.
    pub uid: String,
    /// The groups, `system:authenticated` included.
    pub groups: Vec<String>,
    pub(crate) credential: Option<String>,
}

impl User {
    pub(crate) fn admin() -> Self {
        Self::named("admin", &["system:masters"])
    }

    /// A component of the control plane.
    pub(crate) fn system(name: &str) -> Self {
        Self::named(&format!("system:{name}"), &["system:masters"])
    }

    fn named(name: &str, groups: &[&str]) -> Self {
        let groups = groups
            .iter()
            .copied()
            .chain(["system:authenticated"])
            .map(str::to_owned)
            .collect();
        Self {
            name: name.to_owned(),
            uid: name.to_owned(),
            groups,
            credential: None,
        }
    }

    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }

    pub(crate) fn is_service_account(&self) -> bool {
        self.name.starts_with("system:serviceaccount:")
    }

    /// `userInfo` of a TokenReview.
    pub(crate) fn to_json(&self) -> Value {
        let mut info = json!({"username": self.name, "uid": self.uid, "groups": self.groups});
        if let Some(credential) = &self.credential {
            info.put(
                "/extra",
                json!({"authentication.kubernetes.io/credential-id": [credential]}),
            );
        }
        info
    }
}

/// Issues and checks tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    admin: String,
    pub(crate) keys: SigningKeys,
}

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadToken(pub(crate) String);

impl Tokens {
    pub(crate) fn new(admin: &str) -> Self {
        let keys = SigningKeys::default();
        keys.rotate();
        Self {
            admin: admin.to_owned(),
            keys,
        }
    }

    /// A signed token for a service account and when it expires.
    pub(crate) fn issue(
        &self,
        account: &Value,
        audiences: &[String],
        seconds: i64,
        id: &str,
        clock: Clock,
    ) -> (String, String) {
        let now = clock.now().as_second();
        let (namespace, name) = (
            account.text("/metadata/namespace"),
            account.text("/metadata/name"),
        );
        let claims = json!({
            "aud": audiences, "exp": now + seconds, "iat": now, "nbf": now, "iss": ISSUER, "jti": id,
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": account.text("/metadata/uid")}},
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
        });
        let token = self.keys.sign(&claims);
        let expires = jiff::Timestamp::from_second(now + seconds).unwrap_or(jiff::Timestamp::MAX);
        (token, rfc3339(expires))
    }

    /// What a token that we signed and that has not expired says.
    fn claims(&self, token: &str, clock: Clock) -> Result<Value, BadToken> {
        let read = self.keys.verify(token);
        let claims = read.ok_or_else(|| BadToken("invalid bearer token".to_owned()))?;
        if claims
            .number("/exp")
            .is_none_or(|expires| expires <= clock.now().as_second())
        {
            return Err(BadToken(
                "[invalid bearer token, service account token has expired]".to_owned(),
            ));
        }
        Ok(claims)
    }

    /// Who holds `token`, if it is meant for one of `audiences`; returns the audiences that match.
    pub(crate) fn review(
        &self,
        token: &str,
        audiences: &[String],
        store: &Store,
        clock: Clock,
    ) -> Result<(User, Vec<String>), BadToken> {
        let wanted = if audiences.is_empty() {
            vec![ISSUER.to_owned()]
        } else {
            audiences.to_vec()
        };
        if token == self.admin {
            return Ok((User::admin(), wanted));
        }
        let claims = self.claims(token, clock)?;
        let given: Vec<String> = claims
            .list("/aud")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let matching: Vec<String> = wanted
            .iter()
            .filter(|one| given.contains(one))
            .cloned()
            .collect();
        if matching.is_empty() {
            return Err(BadToken(format!(
                "[invalid bearer token, token audiences {given:?} is invalid for the target audiences {wanted:?}]"
            )));
        }
        let account = claims.at("/kubernetes.io");
        let (namespace, name) = (
            account.text("/namespace"),
            account.text("/serviceaccount/name"),
        );
        let stored = store.get(
            &(String::new(), "serviceaccounts".to_owned()),
            &Key::new(namespace, name),
        );
        if !stored.is_some_and(|stored| {
            stored.value.text("/metadata/uid") == account.text("/serviceaccount/uid")
        }) {
            return Err(BadToken(
                "[invalid bearer token, service account token has been invalidated]".to_owned(),
            ));
        }
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let user = User {
            name: claims.text("/sub").to_owned(),
            uid: account.text("/serviceaccount/uid").to_owned(),
            groups,
            credential: Some(format!("JTI={}", claims.text("/jti"))),
        };
        Ok((user, matching))
    }
}
