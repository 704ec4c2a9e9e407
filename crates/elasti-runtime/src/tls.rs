//! The one crypto provider of this process.
//! Never chooses trusted roots: those are the system's, or the file that `SSL_CERT_FILE` names.

/// Installs the provider, unless there is one already.
pub fn install_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
