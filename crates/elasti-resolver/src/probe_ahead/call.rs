//! One probe over the network, as a kubelet would send it: `httpGet`, `tcpSocket` or `grpc`.
//! The two messages of gRPC's health check are written by hand: they have one field each, and a protobuf library with a
//! code generator would be larger than everything here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use elasti_core::probe_ahead::{Call, HttpTarget, MOST_REQUESTS, Verdict};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::net::TcpStream;

/// Apps leave requests of `kube-probe` out of their logs and statistics.
const USER_AGENT: HeaderValue = HeaderValue::from_static("kube-probe/elasti");
/// An answer of a health check is 7 bytes.
const ANSWER_BYTES: usize = 1024;
/// `status: SERVING` of a `HealthCheckResponse`: field 1, a varint, with the value 1.
const SERVING: [u8; 2] = [0x08, 0x01];

/// What probes share.
pub(super) struct Calls {
    /// None if TLS cannot be set up; probes over it fail then, and the kubelet's are waited for.
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Calls")
    }
}

impl Calls {
    pub(super) fn new() -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Arc::new(AnyCertificate(provider.clone()));
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().ok();
        let config = builder.map(|builder| {
            let builder = builder.dangerous();
            let builder = builder.with_custom_certificate_verifier(verifier);
            builder.with_no_client_auth()
        });
        Self {
            tls: config.map(|config| TlsConnector::from(Arc::new(config))),
        }
    }

    /// Whether the probe passes. What fails on the way fails the probe.
    pub(super) async fn pass(&self, address: IpAddr, call: &Call) -> bool {
        let passes = match call {
            Call::Tcp { port } => connect(address, *port).await.map(|_| true),
            Call::Http { target, headers } => self.http(address, target, headers).await,
            Call::Grpc { port, service } => grpc(address, *port, service).await,
        };
        passes.unwrap_or(false)
    }

    /// As a kubelet does: redirects on the same host are followed, and the last answer counts.
    async fn http(
        &self,
        address: IpAddr,
        target: &HttpTarget,
        headers: &[(String, String)],
    ) -> Option<bool> {
        let (mut target, mut headers) = (target.clone(), headers.to_vec());
        for _ in 0..MOST_REQUESTS {
            let answer = self.ask(address, &target, &headers).await?;
            let location = answer.headers().get(header::LOCATION);
            let location = location.map(|value| String::from_utf8_lossy(value.as_bytes()));
            match target.judge(address, answer.status().as_u16(), location.as_deref()) {
                Verdict::Passes(passes) => return Some(passes),
                Verdict::Follow {
                    target: next,
                    keeps_host,
                } => {
                    let is_host = |name: &str| name.eq_ignore_ascii_case("host");
                    headers.retain(|(name, _)| keeps_host || !is_host(name));
                    target = next;
                }
            }
        }
        Some(false)
    }

    /// The answer to one request, whose body does not matter.
    async fn ask(
        &self,
        address: IpAddr,
        target: &HttpTarget,
        headers: &[(String, String)],
    ) -> Option<Response<Incoming>> {
        let to = SocketAddr::new(address, target.port);
        let request = http_request(to, &target.path, headers)?;
        let stream = connect(address, target.port).await?;
        match target.tls {
            false => send_http(stream, request).await,
            true => {
                let name = ServerName::IpAddress(address.into());
                let stream = self.tls.as_ref()?.connect(name, stream).await;
                send_http(stream.ok()?, request).await
            }
        }
    }
}

async fn connect(address: IpAddr, port: u16) -> Option<TcpStream> {
    TcpStream::connect(SocketAddr::new(address, port))
        .await
        .ok()
}

/// The request of an `httpGet`; `None` where its parts are not those of one.
fn http_request(
    to: SocketAddr,
    path: &str,
    headers: &[(String, String)],
) -> Option<Request<Empty<Bytes>>> {
    let uri: Uri = path.parse().ok()?;
    let mut all = HeaderMap::new();
    all.insert(header::HOST, HeaderValue::from_str(&to.to_string()).ok()?);
    all.insert(header::USER_AGENT, USER_AGENT);
    all.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    all.insert(header::CONNECTION, HeaderValue::from_static("close"));
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        all.insert(name, HeaderValue::from_str(value).ok()?);
    }
    let mut request = Request::get(uri).body(Empty::new()).ok()?;
    *request.headers_mut() = all;
    Some(request)
}

async fn send_http(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Empty<Bytes>>,
) -> Option<Response<Incoming>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    driven(connection, sender.send_request(request)).await.ok()
}

/// An exchange over a connection that does its work meanwhile. One that ends first may have brought what is waited for.
async fn driven<T>(connection: impl Future, exchange: impl Future<Output = T>) -> T {
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        done = &mut exchange => return done,
        _ = connection => {}
    }
    exchange.await
}

/// `grpc.health.v1.Health/Check` without TLS, as by a kubelet.
async fn grpc(address: IpAddr, port: u16, service: &str) -> Option<bool> {
    let to = SocketAddr::new(address, port);
    let request = Request::post(format!("http://{to}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, USER_AGENT)
        .body(Full::new(Bytes::from(health_check(service)?)))
        .ok()?;
    let stream = TokioIo::new(connect(address, port).await?);
    let handshake = http2::handshake(TokioExecutor::new(), stream).await;
    let (mut sender, connection) = handshake.ok()?;
    let exchange = async move {
        let response = sender.send_request(request).await.ok()?;
        let body = Limited::new(response.into_body(), ANSWER_BYTES);
        let body = body.collect().await.ok()?;
        let status = body.trailers()?.get("grpc-status")?;
        let well = status.as_bytes() == b"0";
        // A message begins with a flag (0: not compressed) and its length.
        let message = body.to_bytes();
        Some(well && message.get(5..) == Some(SERVING.as_slice()))
    };
    driven(connection, exchange).await
}

/// A `HealthCheckRequest`: field 1 is the name of the service, left out if it is empty.
fn health_check(service: &str) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    if !service.is_empty() {
        // Names are short: one byte is enough for the length of up to 127, two for all that the API server admits.
        let length = u16::try_from(service.len())
            .ok()
            .filter(|one| *one < 1 << 14)?;
        message.push(0x0a);
        let [high, low] = (length << 1).to_be_bytes();
        match high {
            0 => message.push(low >> 1),
            _ => message.extend([(low >> 1) | 0x80, high]),
        }
        message.extend(service.as_bytes());
    }
    let length = u32::try_from(message.len()).ok()?;
    let mut framed = vec![0];
    framed.extend(length.to_be_bytes());
    framed.extend(message);
    Some(framed)
}

/// Takes any certificate, as a kubelet does for its probes: nothing secret is sent, and a pod's own certificate rarely
/// names its address.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
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
        let algorithms = self.0.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a probe with a `host` waits for the kubelet: nothing after that looks at whose address it is.
    #[tokio::test]
    async fn where_a_host_counted_a_pod_would_aim_a_resolver_at_it() {
        let neighbour = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = neighbour.local_addr().unwrap();
        let call = Call::Tcp { port: at.port() };
        assert!(Calls::new().pass(at.ip(), &call).await);
        neighbour.accept().await.unwrap();
    }

    #[test]
    fn a_health_check_is_framed_and_names_its_service() {
        assert_eq!(health_check("").unwrap(), [0, 0, 0, 0, 0]);
        assert_eq!(health_check("ab").unwrap(), b"\0\0\0\0\x04\x0a\x02ab");
        let name = "x".repeat(300);
        let long = health_check(&name).unwrap();
        // 300 = 0b10_0101100: the lower seven bits first.
        assert_eq!(long[..8], [0, 0, 0, 1, 0x2f, 0x0a, 0xac, 0x02]);
        assert_eq!(&long[8..], name.as_bytes());
    }

    #[test]
    fn a_request_has_what_the_spec_says_and_else_what_a_kubelet_sends() {
        let to = "10.0.0.1:8080".parse().unwrap();
        let plain = http_request(to, "/healthz?full=1", &[]).unwrap();
        assert_eq!(plain.uri(), "/healthz?full=1");
        assert_eq!(plain.headers()["host"], "10.0.0.1:8080");
        assert_eq!(plain.headers()["user-agent"], "kube-probe/elasti");
        let own = [("Host", "shop"), ("X-Key", "1"), ("User-Agent", "me")];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let own = http_request(to, "/", &own).unwrap();
        for (name, value) in [("host", "shop"), ("x-key", "1"), ("user-agent", "me")] {
            assert_eq!(own.headers()[name], value);
        }
        let bad = [("a b".to_owned(), String::new())];
        assert!(http_request(to, "/", &bad).is_none());
    }
}
