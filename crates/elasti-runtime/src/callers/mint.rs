//! Makes keys and tokens for tests, as an API server does, and as a forger does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::issuer::Issuer;

pub(super) const ISSUER: &str = "https://kubernetes.default.svc";
pub(super) const AUDIENCE: &str = "elasti-operator";
pub(super) const OWNER: &str = "system:serviceaccount:elasti:elasti-resolver";
/// When all tokens of these tests are made.
pub(super) const NOW: i64 = 1_800_000_000;

enum Pair {
    Rsa(RsaKeyPair),
    Curve(EcdsaKeyPair, &'static str),
}

/// A key pair of an API server.
pub(super) struct Mint {
    pair: Pair,
    pub(super) id: &'static str,
    pub(super) algorithm: &'static str,
}

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Mint {
    pub(super) fn rsa(id: &'static str) -> Self {
        let pair = Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap());
        let algorithm = "RS256";
        Self {
            pair,
            id,
            algorithm,
        }
    }

    pub(super) fn curve(id: &'static str) -> Self {
        Self::on(id, "ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    fn on(
        id: &'static str,
        algorithm: &'static str,
        curve: &'static str,
        signing: &'static EcdsaSigningAlgorithm,
    ) -> Self {
        let pair = Pair::Curve(EcdsaKeyPair::generate(signing).unwrap(), curve);
        Self {
            pair,
            id,
            algorithm,
        }
    }

    /// One of each kind.
    pub(super) fn all_kinds() -> [Self; 4] {
        let signing = &ECDSA_P384_SHA384_FIXED_SIGNING;
        let longest = &ECDSA_P521_SHA512_FIXED_SIGNING;
        [
            Self::rsa("rsa"),
            Self::curve("p256"),
            Self::on("p384", "ES384", "P-384", signing),
            Self::on("p521", "ES512", "P-521", longest),
        ]
    }

    /// The public half, as it is published.
    pub(super) fn published(&self) -> Value {
        let mut key = json!({"use": "sig", "kid": self.id, "alg": self.algorithm});
        let parts = match &self.pair {
            Pair::Rsa(pair) => {
                // A sequence of two numbers; the first has 2048 bits and a zero before them.
                let whole = pair.public_key().as_ref();
                vec![
                    ("kty", "RSA".to_owned()),
                    ("n", encode(&whole[9..265])),
                    ("e", encode(&whole[267..])),
                ]
            }
            Pair::Curve(pair, curve) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                vec![
                    ("kty", "EC".to_owned()),
                    ("crv", (*curve).to_owned()),
                    ("x", encode(x)),
                    ("y", encode(y)),
                ]
            }
        };
        for (name, value) in parts {
            key[name] = json!(value);
        }
        key
    }

    pub(super) fn signature(&self, message: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(
                    &RSA_PKCS1_SHA256,
                    &random,
                    message.as_bytes(),
                    &mut signature,
                )
                .unwrap();
                signature
            }
            Pair::Curve(pair, _) => {
                let signature = pair.sign(&random, message.as_bytes()).unwrap();
                signature.as_ref().to_vec()
            }
        }
    }

    /// A token with any header and claims, signed in truth.
    pub(super) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = format!(
            "{}.{}",
            encode(header.to_string()),
            encode(claims.to_string())
        );
        format!("{message}.{}", encode(self.signature(&message)))
    }

    /// A token as Kubernetes makes it.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.algorithm, "kid": self.id}), claims)
    }
}

/// What a good token says.
pub(super) fn claims() -> Value {
    json!({
        "aud": [AUDIENCE], "exp": NOW + 3600, "iat": NOW, "nbf": NOW, "iss": ISSUER, "sub": OWNER,
        "kubernetes.io": {"namespace": "elasti", "serviceaccount": {"name": "elasti-resolver", "uid": "1"}},
    })
}

pub(super) fn configuration() -> Value {
    json!({"issuer": ISSUER, "jwks_uri": "https://192.0.2.1:6443/openid/v1/jwks"})
}

pub(super) fn key_set(mints: &[&Mint]) -> Value {
    let keys: Vec<Value> = mints.iter().map(|mint| mint.published()).collect();
    json!({"keys": keys})
}

/// The issuer that has these keys.
pub(super) fn issuer(mints: &[&Mint]) -> Issuer {
    let configuration = configuration().to_string();
    let keys = key_set(mints).to_string();
    Issuer::parse(configuration.as_bytes(), keys.as_bytes()).unwrap()
}
