//! TLS between the two processes: one port for both kinds of client, a name that must be proven, and new files at run time.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elasti_runtime::http_server::HttpServer;
use elasti_runtime::peer_tls::{PeerTls, TlsError};
use elasti_testkit::tls::{Certificates, EXPIRED, FIRST, SECOND};
use http::Response;
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{advance, sleep};
use tokio_rustls::TlsConnector;

const NAME: &str = "elasti-operator";

fn folder(certificates: Certificates) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    certificates.write(folder.path());
    folder
}

fn load(folder: &Path) -> PeerTls {
    PeerTls::load(folder).unwrap()
}

async fn serve(tls: &PeerTls) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = HttpServer {
        max_connections: 8,
        max_connections_per_peer: 8,
        header_timeout: Duration::from_secs(600),
    };
    let answer = |_, _| std::future::ready(Ok(Response::new("hello".to_owned())));
    tokio::spawn(server.serve_with_tls(listener, Some(tls.acceptor().unwrap()), answer));
    address
}

async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // The server need not end TLS in order.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether a client that trusts by `tls` accepts the server as `name`, and what it gets.
async fn get_over_tls(
    address: SocketAddr,
    tls: &PeerTls,
    name: &'static str,
) -> std::io::Result<String> {
    let connector = TlsConnector::from(Arc::new(tls.client_config(name).unwrap()));
    let stream = TcpStream::connect(address).await.unwrap();
    // The address says nothing, as with pods.
    let asked = ServerName::IpAddress(address.ip().into());
    Ok(get(connector.connect(asked, stream).await?).await)
}

#[tokio::test]
async fn one_port_serves_clients_with_and_without_tls() {
    let folder = folder(FIRST);
    let tls = load(folder.path());
    let address = serve(&tls).await;
    let plain = get(TcpStream::connect(address).await.unwrap()).await;
    assert!(plain.ends_with("hello"), "{plain}");
    let secret = get_over_tls(address, &tls, NAME).await.unwrap();
    assert!(secret.ends_with("hello"), "{secret}");
}

#[tokio::test]
async fn a_server_with_another_name_or_of_another_authority_is_not_trusted() {
    let (first, second) = (folder(FIRST), folder(SECOND));
    let address = serve(&load(first.path())).await;
    let other_name = get_over_tls(address, &load(first.path()), "another-name").await;
    assert!(other_name.is_err(), "{other_name:?}");
    let other_authority = get_over_tls(address, &load(second.path()), NAME).await;
    assert!(other_authority.is_err(), "{other_authority:?}");
}

#[tokio::test]
async fn an_expired_certificate_is_not_trusted_although_its_authority_is() {
    let folder = folder(EXPIRED);
    let tls = load(folder.path());
    let address = serve(&tls).await;
    let expired = get_over_tls(address, &tls, NAME).await.unwrap_err();
    assert!(expired.to_string().contains("expired"), "{expired}");
}

#[tokio::test(start_paused = true)]
async fn a_new_authority_is_trusted_at_once_and_shown_once_everybody_trusts_it() {
    let (server, early, late) = (folder(FIRST), folder(FIRST), folder(FIRST));
    let serving = load(server.path());
    let address = serve(&serving).await;
    let (trusts_both, trusts_first) = (load(early.path()), load(late.path()));
    for tls in [&serving, &trusts_both, &trusts_first] {
        tokio::spawn(tls.clone().follow());
    }
    // The Secret changes; two of the three kubelets have brought it.
    SECOND.write(server.path());
    SECOND.write(early.path());
    sleep(Duration::from_secs(30)).await;
    for tls in [&trusts_both, &trusts_first] {
        assert!(get_over_tls(address, tls, NAME).await.is_ok());
    }
    // The third too, and after a while the server shows the new one.
    SECOND.write(late.path());
    advance(Duration::from_secs(200)).await;
    sleep(Duration::from_secs(30)).await;
    for tls in [&trusts_both, &trusts_first] {
        assert!(get_over_tls(address, tls, NAME).await.is_ok());
    }
    let only_second = folder(SECOND);
    assert!(
        get_over_tls(address, &load(only_second.path()), NAME)
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn files_that_do_not_fit_together_change_nothing() {
    let folder = folder(FIRST);
    let tls = load(folder.path());
    let address = serve(&tls).await;
    tokio::spawn(tls.clone().follow());
    std::fs::write(folder.path().join("tls.key"), SECOND.key).unwrap();
    sleep(Duration::from_secs(300)).await;
    assert!(get_over_tls(address, &tls, NAME).await.is_ok());
    let reloaded = PeerTls::load(folder.path());
    assert!(matches!(reloaded, Err(TlsError::Rustls(_))), "{reloaded:?}");
}

#[test]
fn without_a_certificate_there_is_no_tls() {
    let empty = tempfile::tempdir().unwrap();
    assert!(PeerTls::load_if_present(None).unwrap().is_none());
    let none = PeerTls::load_if_present(Some(empty.path())).unwrap();
    assert!(none.is_none());
}
