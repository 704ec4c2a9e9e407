//! Verifies a JSON Web Token (RFC 7515, RFC 7519).
//! Never believes a token about how it is to be checked: key and algorithm are the issuer's, not the token's.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Owner;
use super::issuer::Issuer;

/// How far clocks may be apart, as Kubernetes itself has it.
const LEEWAY_SECONDS: i64 = 60;
/// Every user of a service account is called so.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// What is wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It cannot be read as a token.
    #[error("it is not a service account token")]
    Malformed,
    /// TokenReview says no.
    #[error("it is unknown, expired or meant for another audience")]
    Refused,
    /// No key of the issuer has the name that it gives.
    #[error("its key is unknown")]
    UnknownKey,
    /// It wants to be checked in a way that its key is not for.
    #[error("its algorithm is not that of its key")]
    Algorithm,
    /// It was not signed with that key.
    #[error("its signature is wrong")]
    Signature,
    /// Another issuer signed it.
    #[error("its issuer is not this cluster")]
    Issuer,
    /// It is meant for another audience.
    #[error("it is meant for another audience")]
    Audience,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// Its time has not come.
    #[error("it is not valid yet")]
    NotYet,
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    /// Extensions that must be understood; none is.
    crit: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audiences,
    exp: i64,
    nbf: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

impl Audiences {
    fn contain(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}

/// A token whose parts can be read, and of which nothing is believed yet.
#[derive(Debug)]
pub(super) struct Token<'a> {
    header: Header,
    claims: &'a str,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, Flaw> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Flaw::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Flaw::Malformed)?;
        let header: Header = decoded(header)?;
        if claims.contains('.') || header.crit.is_some() {
            return Err(Flaw::Malformed);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature);
        Ok(Self {
            header,
            claims,
            signed,
            signature: signature.map_err(|_| Flaw::Malformed)?,
        })
    }

    /// The name of the key that it was signed with, as it says.
    pub(super) fn key_id(&self) -> &str {
        &self.header.kid
    }

    /// Whose token it is at `now`, in seconds since 1970.
    pub(super) fn owner(&self, issuer: &Issuer, audience: &str, now: i64) -> Result<Owner, Flaw> {
        let key = issuer.key(self.key_id()).ok_or(Flaw::UnknownKey)?;
        if self.header.alg != key.algorithm() {
            return Err(Flaw::Algorithm);
        }
        if !key.verifies(self.signed.as_bytes(), &self.signature) {
            return Err(Flaw::Signature);
        }
        let claims: Claims = decoded(self.claims)?;
        if claims.iss != issuer.name() {
            return Err(Flaw::Issuer);
        }
        if !claims.aud.contain(audience) {
            return Err(Flaw::Audience);
        }
        let left = claims
            .exp
            .saturating_add(LEEWAY_SECONDS)
            .saturating_sub(now);
        if left <= 0 {
            return Err(Flaw::Expired);
        }
        let begins = claims.nbf.unwrap_or(i64::MIN);
        if begins > now.saturating_add(LEEWAY_SECONDS) {
            return Err(Flaw::NotYet);
        }
        if !claims.sub.starts_with(SERVICE_ACCOUNT) {
            return Err(Flaw::Malformed);
        }
        Ok(Owner {
            user: claims.sub,
            good_for: Some(Duration::from_secs(left.unsigned_abs())),
        })
    }
}

fn decoded<T: DeserializeOwned>(part: &str) -> Result<T, Flaw> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| Flaw::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| Flaw::Malformed)
}

#[cfg(test)]
mod tests;
