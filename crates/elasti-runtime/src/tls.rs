//! The one crypto provider of this process.
//! Never chooses trusted roots: those are the system's, or the file that `SSL_CERT_FILE` names.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, KeyProvider, aws_lc_rs};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};

/// Installs the provider, unless there is one already.
pub fn install_provider() {
    let provider = CryptoProvider {
        key_provider: &KeysForAnyCertificate,
        ..aws_lc_rs::default_provider()
    };
    let _ = provider.install_default();
}

/// Before rustls shows a client certificate it compares its key with ours, and fails on a certificate of X.509
/// version 1, which it cannot read. The server compares them in any case, and kubectl leaves it to it.
#[derive(Debug)]
struct KeysForAnyCertificate;

impl KeyProvider for KeysForAnyCertificate {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        let provider = aws_lc_rs::default_provider().key_provider;
        Ok(Arc::new(KeyForAnyCertificate(
            provider.load_private_key(key)?,
        )))
    }
}

/// A key that does not give its public half, so that there is nothing to compare.
#[derive(Debug)]
struct KeyForAnyCertificate(Arc<dyn SigningKey>);

impl SigningKey for KeyForAnyCertificate {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.0.choose_scheme(offered)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}
