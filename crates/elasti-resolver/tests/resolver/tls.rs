//! With TLS a token goes only to an operator that proves to be one.

use elasti_testkit::fixture::{Fixture, http_get, service, until};
use elasti_testkit::tls::FIRST;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

#[tokio::test(start_paused = true)]
async fn a_token_is_shown_to_nobody_who_cannot_prove_to_be_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    FIRST.write(folder.path());
    let token = folder.path().join("token");
    std::fs::write(&token, "the-secret-token").unwrap();
    let thief = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let operator = thief.local_addr().unwrap().to_string();
    let fixture = Fixture::with(|settings| {
        settings.operator = operator;
        settings.tls_folder = Some(folder.path().to_owned());
        settings.token_file = Some(token);
    })
    .await;
    let address = fixture.asleep(service("cart")).await;
    tokio::spawn(async move { http_get(&address, "/").await });
    until("the request is held", async || {
        fixture.resolver().held() == 1
    })
    .await;
    for _ in 0..3 {
        let (mut stream, _) = thief.accept().await.unwrap();
        let mut received = vec![0; 4096];
        let count = stream.read(&mut received).await.unwrap();
        let received = &received[..count];
        // A handshake, and nothing of HTTP.
        assert_eq!(received.first(), Some(&0x16));
        let text = String::from_utf8_lossy(received);
        assert!(!text.contains("secret") && !text.contains("POST"), "{text}");
    }
    let metrics = fixture.admin("/metrics").await.body;
    assert!(metrics.contains("error=\"untrusted\""), "{metrics}");
}
