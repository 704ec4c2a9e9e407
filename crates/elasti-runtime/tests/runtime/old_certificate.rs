//! A client certificate of X.509 version 1 is shown to the server, as kubectl does it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use elasti_runtime::{kube_client, tls};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
    Stream,
};

const KUBECONFIG: &str = include_str!("old-certificate.yaml");
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// Wants a client certificate and takes any: what it proves is the API server's to judge.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// The PEM under this key of the kubeconfig.
fn pem(key: &str) -> Vec<u8> {
    let line = KUBECONFIG
        .lines()
        .find_map(|line| line.trim().strip_prefix(key));
    BASE64_STANDARD.decode(line.unwrap().trim()).unwrap()
}

/// Answers one request and gives the certificate that came with it.
fn answer_one(listener: &TcpListener, config: ServerConfig) -> CertificateDer<'static> {
    let (mut socket, _) = listener.accept().unwrap();
    let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
    let mut stream = Stream::new(&mut connection, &mut socket);
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    stream.write_all(ANSWER).unwrap();
    connection.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

#[tokio::test]
async fn a_client_certificate_of_version_1_is_taken() {
    tls::install_provider();
    let certificate = CertificateDer::from_pem_slice(&pem("client-certificate-data:")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data:")).unwrap();
    let server = ServerConfig::builder()
        .with_client_cert_verifier(Arc::new(AnyClient))
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || answer_one(&listener, server));

    let kubeconfig = Kubeconfig::from_yaml(KUBECONFIG).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    config.cluster_url = format!("https://{address}").parse().unwrap();
    let client = kube_client::from_config(config).unwrap();
    let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
    client.request::<serde_json::Value>(request).await.unwrap();
    assert_eq!(served.join().unwrap(), certificate);
}
