//! With TLS a token goes only to an operator that proves to be one.

use elasti_runtime::peer_tls::{PeerTls, TlsAcceptor};
use elasti_testkit::fixture::{Fixture, http_get, service, until};
use elasti_testkit::tls::{Certificates, EXPIRED, FIRST, SECOND};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a resolver sends that reads its authority from `folder`, if any, to what answers in the operator's place.
async fn robbed(folder: Option<&TempDir>) -> (Fixture, TcpListener, TempDir) {
    let secrets = tempfile::tempdir().unwrap();
    let token = secrets.path().join("token");
    std::fs::write(&token, "the-secret-token").unwrap();
    let thief = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let operator = thief.local_addr().unwrap().to_string();
    let fixture = Fixture::with(|settings| {
        settings.operator = operator;
        settings.tls_folder = folder.map(|folder| folder.path().to_owned());
        settings.token_file = Some(token);
    })
    .await;
    let address = fixture.asleep(service("cart")).await;
    tokio::spawn(async move { http_get(&address, "/").await });
    until("the request is held", async || {
        fixture.resolver().held() == 1
    })
    .await;
    (fixture, thief, secrets)
}

fn folder(certificates: Certificates) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    certificates.write(folder.path());
    folder
}

async fn received(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = vec![0; 4096];
    let count = stream.read(&mut received).await.unwrap();
    received.truncate(count);
    received
}

/// A handshake, and nothing of HTTP.
fn assert_a_handshake(received: &[u8]) {
    assert_eq!(received.first(), Some(&0x16));
    let text = String::from_utf8_lossy(received);
    assert!(!text.contains("secret") && !text.contains("POST"), "{text}");
}

async fn assert_untrusted(fixture: &Fixture) {
    until("it is counted", async || {
        let metrics = fixture.admin("/metrics").await.body;
        metrics.contains("error=\"untrusted\"")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_token_is_shown_to_nobody_who_cannot_prove_to_be_the_operator() {
    let folder = folder(FIRST);
    let (fixture, thief, _secrets) = robbed(Some(&folder)).await;
    for answer in [
        b"".as_slice(),
        b"\x16\x03\x03\x00\x04junk",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ] {
        let (mut stream, _) = thief.accept().await.unwrap();
        assert_a_handshake(&received(&mut stream).await);
        stream.write_all(answer).await.unwrap();
        let mut rest = Vec::new();
        if !answer.is_empty() {
            let _ = stream.read_to_end(&mut rest).await;
        }
        let text = String::from_utf8_lossy(&rest);
        assert!(!text.contains("secret") && !text.contains("POST"), "{text}");
    }
    assert_untrusted(&fixture).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_is_not_shown_for_a_certificate_of_another_authority_or_one_that_has_expired() {
    for (trusted, shown) in [(FIRST, SECOND), (EXPIRED, EXPIRED)] {
        let (own, of_thief) = (folder(trusted), folder(shown));
        let acceptor: TlsAcceptor = PeerTls::load(of_thief.path()).unwrap().acceptor().unwrap();
        let (fixture, thief, _secrets) = robbed(Some(&own)).await;
        for _ in 0..3 {
            let (stream, _) = thief.accept().await.unwrap();
            let handshake = acceptor.accept(stream).await;
            assert!(handshake.is_err(), "the resolver goes on");
        }
        assert_untrusted(&fixture).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_tls_a_token_is_shown_to_whoever_answers() {
    let (_fixture, thief, _secrets) = robbed(None).await;
    until("a request shows it", async || {
        let (mut stream, _) = thief.accept().await.unwrap();
        let received =
            tokio::time::timeout(std::time::Duration::from_secs(1), received(&mut stream));
        let received = received.await.unwrap_or_default();
        String::from_utf8_lossy(&received).contains("the-secret-token")
    })
    .await;
}
