//! TLS between operator and resolver, from the files of a Secret: `tls.crt`, `tls.key` and `ca.crt`. Files that change are
//! taken over while the process runs, in an order in which no connection fails.
//! Never tells who calls: that is what tokens are for.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use tokio::time::{Instant, sleep};

pub use rustls::ClientConfig;
pub use tokio_rustls::TlsAcceptor;

/// How often the files are compared with what is in use.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// A certificate of a new authority is shown only after this time: kubelets refresh the files of a Secret within about
/// 90 s, and by then every caller trusts the new authority. Callers trust the one before as well.
const NEW_AUTHORITY_DELAY: Duration = Duration::from_secs(180);

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// A file is not PEM.
    #[error("not PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The certificate does not fit the key, or the like.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// There is no usable certificate authority.
    #[error("ca.crt: {0}")]
    Authority(#[from] rustls::client::VerifierBuilderError),
}

/// The contents of the Secret.
#[derive(Clone, PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authority: Vec<u8>,
}

impl Files {
    fn read(folder: &Path) -> Result<Self, TlsError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|error| TlsError::Read(path, error))
        };
        Ok(Self {
            certificate: read("tls.crt")?,
            key: read("tls.key")?,
            authority: read("ca.crt")?,
        })
    }

    /// What a server shows. Fails if the files are of two versions of the Secret.
    fn certified_key(&self) -> Result<Arc<CertifiedKey>, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let key = PrivateKeyDer::from_pem_slice(&self.key)?;
        let provider = aws_lc_rs::default_provider();
        Ok(Arc::new(CertifiedKey::from_der(chain?, key, &provider)?))
    }
}

/// Who trusts these authorities.
fn verifier(authorities: &[&[u8]]) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        for certificate in CertificateDer::pem_slice_iter(authority) {
            roots.add(certificate?)?;
        }
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    Ok(builder.build()?)
}

/// What is in use.
struct State {
    files: Files,
    shown: Arc<CertifiedKey>,
    /// Shown from then on.
    next: Option<(Instant, Arc<CertifiedKey>)>,
    trusted: Arc<WebPkiServerVerifier>,
}

impl State {
    fn new(files: Files) -> Result<Self, TlsError> {
        Ok(Self {
            shown: files.certified_key()?,
            next: None,
            trusted: verifier(&[&files.authority])?,
            files,
        })
    }

    /// Takes over the files as they are now.
    fn refresh(&mut self, files: Files, now: Instant) -> Result<(), TlsError> {
        if files != self.files {
            let key = files.certified_key()?;
            if files.authority == self.files.authority {
                // Everybody trusts it already.
                (self.shown, self.next) = (key, None);
            } else {
                self.trusted = verifier(&[&files.authority, &self.files.authority])?;
                self.next = Some((now + NEW_AUTHORITY_DELAY, key));
            }
            self.files = files;
        }
        if let Some((_, key)) = self.next.take_if(|(from, _)| *from <= now) {
            self.shown = key;
        }
        Ok(())
    }
}

/// The certificate of one process, and whom it trusts.
#[derive(Clone)]
pub struct PeerTls {
    folder: PathBuf,
    state: Arc<RwLock<State>>,
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl PeerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn load(folder: &Path) -> Result<Self, TlsError> {
        let state = State::new(Files::read(folder)?)?;
        Ok(Self {
            folder: folder.to_owned(),
            state: Arc::new(RwLock::new(state)),
        })
    }

    /// The same for a folder that may be empty, as the volume of a Secret that is optional: without a certificate there
    /// is no TLS.
    ///
    /// # Errors
    /// If there are files that cannot be used.
    pub fn load_if_present(folder: Option<&Path>) -> Result<Option<Self>, TlsError> {
        let Some(folder) = folder else {
            return Ok(None);
        };
        if !folder.join("tls.crt").exists() {
            tracing::warn!(folder = %folder.display(), "no TLS certificate found; tokens are sent without TLS");
            return Ok(None);
        }
        Self::load(folder).map(Some)
    }

    /// Follows the files for ever.
    pub async fn follow(self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            let files = Files::read(&self.folder);
            let refreshed =
                files.and_then(|files| self.state.write().refresh(files, Instant::now()));
            if let Err(error) = refreshed {
                tracing::warn!(%error, "TLS files cannot be used; the ones before stay in use");
            }
        }
    }

    /// For a server.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shown(self.state.clone())));
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// For a client of a server whose certificate has this name, whatever its address.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn client_config(&self, name: &'static str) -> Result<ClientConfig, TlsError> {
        let name = ServerName::try_from(name)
            .map_err(|_| rustls::Error::General("the name of the other side".into()))?;
        let verifier = Trusted {
            state: self.state.clone(),
            name,
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        Ok(ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth())
    }
}

/// Shows the certificate that is in use.
struct Shown(Arc<RwLock<State>>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().shown.clone())
    }
}

/// Checks that a certificate has the other side's name. Pods are reached by address, which no certificate can name.
struct Trusted {
    state: Arc<RwLock<State>>,
    name: ServerName<'static>,
}

impl fmt::Debug for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trusted")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Trusted {
    fn verifier(&self) -> Arc<WebPkiServerVerifier> {
        self.state.read().trusted.clone()
    }
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier()
            .verify_server_cert(certificate, intermediates, &self.name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier()
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier()
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}
