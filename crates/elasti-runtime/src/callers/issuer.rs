//! The issuer of tokens and its public keys (RFC 7517).

use std::collections::HashMap;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
    EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

/// An API server has one to three.
const MAX_KEYS: usize = 64;

#[derive(Debug, Deserialize)]
struct Configuration {
    issuer: String,
}

#[derive(Debug, Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct PublishedKey {
    kid: String,
    kty: String,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

/// A public key. Each has one algorithm, as Kubernetes signs.
#[derive(Debug)]
pub(super) enum Key {
    /// RS256.
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// ES256, ES384 or ES512.
    Curve {
        name: &'static str,
        algorithm: &'static EcdsaVerificationAlgorithm,
        point: Vec<u8>,
    },
}

impl Key {
    fn from_published(published: &PublishedKey) -> Option<Self> {
        let number = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let curve = |name, algorithm, bytes: usize| {
            let (x, y) = (number(&published.x)?, number(&published.y)?);
            // 4 says: both numbers follow, each in full length.
            let point = [&[4][..], x.as_slice(), y.as_slice()].concat();
            (x.len() == bytes && y.len() == bytes).then_some(Self::Curve {
                name,
                algorithm,
                point,
            })
        };
        let key = match (published.kty.as_str(), published.crv.as_str()) {
            ("RSA", _) => Some(Self::Rsa(RsaPublicKeyComponents {
                n: number(&published.n)?,
                e: number(&published.e)?,
            })),
            ("EC", "P-256") => curve("ES256", &ECDSA_P256_SHA256_FIXED, 32),
            ("EC", "P-384") => curve("ES384", &ECDSA_P384_SHA384_FIXED, 48),
            ("EC", "P-521") => curve("ES512", &ECDSA_P521_SHA512_FIXED, 66),
            _ => None,
        }?;
        let is_for = |said: &Option<String>, ours| said.as_deref().is_none_or(|one| one == ours);
        (is_for(&published.alg, key.algorithm()) && is_for(&published.purpose, "sig"))
            .then_some(key)
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Curve { name, .. } => name,
        }
    }

    /// Whether this was signed with the private key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rsa(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            Self::Curve {
                algorithm, point, ..
            } => UnparsedPublicKey::new(*algorithm, point).verify(message, signature),
        };
        verified.is_ok()
    }
}

/// Who issues tokens.
#[derive(Debug)]
pub(super) struct Issuer {
    name: String,
    keys: HashMap<String, Key>,
}

impl Issuer {
    /// Reads the OpenID configuration and the key set of an API server.
    pub(super) fn parse(configuration: &[u8], keys: &[u8]) -> Result<Self, serde_json::Error> {
        let Configuration { issuer } = serde_json::from_slice(configuration)?;
        let KeySet { keys } = serde_json::from_slice(keys)?;
        let mut known = HashMap::new();
        for key in keys.into_iter().take(MAX_KEYS) {
            let Ok(published) = serde_json::from_value::<PublishedKey>(key) else {
                continue;
            };
            if let Some(key) = Key::from_published(&published) {
                known.insert(published.kid, key);
            }
        }
        Ok(Self {
            name: issuer,
            keys: known,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn key(&self, id: &str) -> Option<&Key> {
        self.keys.get(id)
    }
}
