//! The keys that sign service-account tokens as JSON Web Tokens (ES256), and their public halves.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Who signs, and the audience of tokens for the API server itself.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// Where the keys are published.
const KEYS_PATH: &str = "/openid/v1/jwks";
const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";

#[derive(Debug)]
struct SigningKey {
    pair: EcdsaKeyPair,
    /// By this the key is known.
    id: String,
}

impl SigningKey {
    fn generate() -> Result<Self, Unspecified> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(pair.public_key().as_ref()));
        Ok(Self { pair, id })
    }

    fn published(&self) -> Value {
        // One byte that says "not compressed", then two numbers of 32 bytes.
        let (x, y) = match self.pair.public_key().as_ref() {
            [_, numbers @ ..] => numbers.split_at(numbers.len() / 2),
            [] => (&[][..], &[][..]),
        };
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        })
    }
}

/// All keys of one server. The first signs; each is believed.
#[derive(Debug, Default)]
pub(crate) struct SigningKeys(Mutex<Vec<SigningKey>>);

impl SigningKeys {
    /// A new key signs from now on. Those before it are believed until they are retired.
    pub(crate) fn rotate(&self) {
        // Without a source of randomness nothing can be signed, and every token is refused.
        if let Ok(key) = SigningKey::generate() {
            self.0.lock().insert(0, key);
        }
    }

    /// A token that says this.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let keys = self.0.lock();
        let Some(key) = keys.first() else {
            return String::new();
        };
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": "ES256", "kid": key.id});
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = key.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.map(|signature| URL_SAFE_NO_PAD.encode(signature.as_ref()));
        format!("{signed}.{}", signature.unwrap_or_default())
    }

    /// What a token says, if one of the keys signed it.
    pub(crate) fn verify(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        let keys = self.0.lock();
        let key = keys
            .iter()
            .find(|key| header.get("kid").is_some_and(|kid| *kid == key.id))?;
        let public = key.pair.public_key().as_ref();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public)
            .verify(signed.as_bytes(), &decode(signature)?)
            .ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }

    /// The document at a path, and its content type.
    pub(crate) fn document(&self, path: &str) -> Option<(Value, &'static str)> {
        match path {
            KEYS_PATH => {
                let keys: Vec<Value> = self.0.lock().iter().map(SigningKey::published).collect();
                Some((json!({"keys": keys}), "application/jwk-set+json"))
            }
            CONFIGURATION_PATH => {
                let document = json!({
                    "issuer": ISSUER, "jwks_uri": format!("{ISSUER}{KEYS_PATH}"),
                    "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["ES256"],
                });
                Some((document, "application/json"))
            }
            _ => None,
        }
    }
}
