//! Hostile clients against the resolver as a process: HTTP/2 floods, a killed resolver.

use crate::process::{LIMIT, ResolverProcess};
use elasti_testkit::fixture::{Fixture, HTTP, PODS, http_get as ask, service, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// One HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET http://x/` in the words of the static table.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'x'];

/// An awake service; clients that still arrive at the resolver are served there.
async fn awake() -> (Fixture, ResolverProcess, String) {
    let fixture = Fixture::without_resolver().await;
    let resolver = ResolverProcess::start(&fixture, &[]).await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(ask(&address, "/").await.code(), 200);
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    (fixture, resolver, direct)
}

/// Sends as much of a flood as is taken; gives what came back, and whether the resolver ended the connection.
async fn flood(direct: &str, bytes: Vec<u8>) -> (Vec<u8>, bool) {
    let stream = TcpStream::connect(direct).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let sending = tokio::spawn(async move {
        let _ = timeout(LIMIT, writer.write_all(&bytes)).await;
        writer
    });
    let mut back = Vec::new();
    let mut part = vec![0; 65_536];
    let quiet = std::time::Duration::from_secs(5);
    let ended = loop {
        match timeout(quiet, reader.read(&mut part)).await {
            Ok(Ok(0) | Err(_)) => break true,
            Ok(Ok(read)) => back.extend(&part[..read]),
            Err(_) if sending.is_finished() => break false,
            Err(_) => {}
        }
    };
    sending.abort();
    (back, ended)
}

/// The error code of the GOAWAY among the frames that came back.
fn go_away(mut back: &[u8]) -> Option<u32> {
    while back.len() >= 9 {
        let length = u32::from_be_bytes([0, back[0], back[1], back[2]]) as usize;
        let (kind, payload) = (back[3], back.get(9..9 + length)?);
        if kind == GO_AWAY {
            return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        back = &back[9 + length..];
    }
    None
}

/// Other clients are served, and memory has not grown by more than this.
async fn unharmed(resolver: &ResolverProcess, direct: &str, before_kib: u64, what: &str) {
    for at in 0..20 {
        assert_eq!(ask(direct, &format!("/{at}")).await.code(), 200);
    }
    let peak = resolver.memory_kib("VmHWM");
    println!("{what}: {before_kib} KiB before, {peak} KiB at the peak");
    assert!(
        peak - before_kib < 32 * 1024,
        "{what}: {before_kib} KiB, then {peak} KiB"
    );
}

#[tokio::test]
async fn a_flood_of_streams_that_are_reset_at_once_harms_no_other_client() {
    let (_scene, resolver, direct) = awake().await;
    let before = resolver.memory_kib("VmRSS");
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    for at in 0..50_000_u32 {
        bytes.extend(frame(HEADERS, 0x5, at * 2 + 1, GET));
        bytes.extend(frame(RESET, 0, at * 2 + 1, &8_u32.to_be_bytes()));
    }
    let (back, ended) = flood(&direct, bytes).await;
    println!("rapid reset: GOAWAY {:?}, ended {ended}", go_away(&back));
    assert!(ended, "the flood was cut off");
    assert_eq!(go_away(&back), Some(11), "ENHANCE_YOUR_CALM");
    unharmed(&resolver, &direct, before, "rapid reset").await;
}

#[tokio::test]
async fn a_head_that_goes_on_in_continuation_frames_is_cut_off() {
    let (_scene, resolver, direct) = awake().await;
    let before = resolver.memory_kib("VmRSS");
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    bytes.extend(frame(HEADERS, 0x1, 1, GET));
    // A header of 16,000 letters that is never indexed, 4,000 times: 64 MB.
    let mut header = vec![0x10, 0x01, b'a', 0x7f, 0x81, 0x7c];
    header.extend(vec![b'x'; 16_000]);
    for _ in 0..4_000 {
        bytes.extend(frame(CONTINUATION, 0, 1, &header));
    }
    let (back, ended) = flood(&direct, bytes).await;
    println!("CONTINUATION: GOAWAY {:?}, ended {ended}", go_away(&back));
    assert!(ended, "the flood was cut off");
    unharmed(&resolver, &direct, before, "CONTINUATION flood").await;
}

#[tokio::test]
async fn a_flood_of_settings_and_pings_harms_no_other_client() {
    let (_scene, resolver, direct) = awake().await;
    let before = resolver.memory_kib("VmRSS");
    for (what, one) in [
        ("SETTINGS flood", frame(SETTINGS, 0, 0, &[])),
        ("PING flood", frame(PING, 0, 0, &[0; 8])),
    ] {
        // The client reads nothing, so that answers pile up if anybody lets them.
        let mut client = TcpStream::connect(&direct).await.unwrap();
        client.write_all(PREFACE).await.unwrap();
        client.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let many = one.repeat(1_000);
        for _ in 0..2_000 {
            let sent = timeout(std::time::Duration::from_secs(5), client.write_all(&many)).await;
            if !matches!(sent, Ok(Ok(()))) {
                break; // it is slowed down or cut off
            }
        }
        unharmed(&resolver, &direct, before, what).await;
    }
}

#[tokio::test]
async fn a_resolver_that_is_killed_loses_what_it_holds_but_not_the_wake() {
    let fixture = Fixture::without_resolver().await;
    let mut resolver = ResolverProcess::start(&fixture, &[]).await;
    let mut slow = service("cart");
    slow.start_seconds = "3";
    let address = fixture.asleep(slow).await;
    let mut held = TcpStream::connect(&address).await.unwrap();
    held.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    until("the operator hears", async || {
        !fixture.operator.wakes().is_empty()
    })
    .await;
    resolver.signal("KILL").await;
    assert_eq!(resolver.ended().await.code(), None);
    let mut rest = Vec::new();
    let _ = timeout(LIMIT, held.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty(), "no answer is invented");
    until("the pod gets ready without any resolver", async || {
        let pods = fixture.api_client.items(PODS).await;
        pods.iter().any(|pod| {
            let conditions = pod["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            conditions
                .iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
        })
    })
    .await;
    let _next = ResolverProcess::start(&fixture, &[]).await;
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    until("the next resolver listens", async || {
        TcpStream::connect(&direct).await.is_ok()
    })
    .await;
    assert_eq!(ask(&direct, "/").await.code(), 200);
    assert_eq!(fixture.operator.wakes().len(), 1, "without another wake");
}
