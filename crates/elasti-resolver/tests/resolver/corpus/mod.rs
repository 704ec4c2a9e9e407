//! Hostile, odd and oversized messages against the real listener, with a strict pod behind it as the oracle.
//! No message may have two readings: what the pod received, what the client received, and what comes after are checked.
//!
//! The outcome of each case stands in `expected.txt`; `ELASTI_CORPUS=write` rewrites it, for review.

mod http1;
pub mod http2;
mod oracle;

use std::net::IpAddr;
use std::time::Duration;

use elasti_testkit::fixture::{Fixture, HTTP, PODS, TestPort, http_get, service, until};
use oracle::Oracle;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const EXPECTED: &str = include_str!("expected.txt");
/// Nothing that is still to come takes longer; the clock is paused, so this costs nothing.
const SILENCE: Duration = Duration::from_secs(20);

/// A port that is declared as HTTP, and an oracle where its pod should be.
async fn start() -> (Fixture, Oracle, String) {
    let fixture = Fixture::start().await;
    let mut hollow = service("cart");
    hollow.image = "never-ready:1";
    hollow.probed = false;
    hollow.ports = vec![TestPort {
        app_protocol: Some("http"),
        ..HTTP
    }];
    let address = fixture.asleep(hollow).await;
    let first = tokio::spawn(async move { http_get(&address, "/first").await });
    let mut pod: Option<IpAddr> = None;
    until("a pod has an address", async || {
        let pods = fixture.api_client.items(PODS).await;
        pod = pods
            .first()
            .and_then(|pod| pod["status"]["podIP"].as_str()?.parse().ok());
        pod.is_some()
    })
    .await;
    let oracle = Oracle::start((pod.unwrap(), 8000 + HTTP.port)).await;
    assert_eq!(first.await.unwrap().body, "/first");
    oracle.take_lines();
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    (fixture, oracle, direct)
}

/// What comes until silence or the end.
async fn listen(stream: &mut TcpStream, enough: impl Fn(&[u8]) -> bool) -> (Vec<u8>, bool) {
    let (mut received, mut piece) = (Vec::new(), vec![0; 65_536]);
    loop {
        if enough(&received) {
            return (received, false);
        }
        match timeout(SILENCE, stream.read(&mut piece)).await {
            Ok(Ok(0) | Err(_)) => return (received, true),
            Ok(Ok(read)) => received.extend_from_slice(&piece[..read]),
            Err(_) => return (received, false),
        }
    }
}

/// Status and body of every HTTP/1 answer.
fn answers(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).unwrap_or("?").to_owned();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok())
            .unwrap_or(0);
        let reason = head
            .lines()
            .find_map(|line| line.strip_prefix("x-elasti-reason: "));
        let body = bytes[end + 4..].get(..length).unwrap_or_default();
        bytes = bytes[end + 4..].get(length..).unwrap_or_default();
        let body = reason.map_or_else(
            || String::from_utf8_lossy(body).into_owned(),
            |reason| format!("({reason})"),
        );
        all.push((status, body));
    }
    all
}

fn shortened(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        format!("{short}...")
    } else {
        short
    }
}

/// Equal neighbours are counted.
fn counted(all: &[String]) -> String {
    let mut groups: Vec<(usize, String)> = Vec::new();
    for one in all {
        match groups.last_mut() {
            Some((count, same)) if same == one => *count += 1,
            _ => groups.push((1, one.clone())),
        }
    }
    let words = groups.into_iter().map(|(count, one)| {
        if count == 1 {
            one
        } else {
            format!("{count} x {one}")
        }
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() {
        "nothing".into()
    } else {
        words.join(", ")
    }
}

/// The oracle's line may come a moment after the client's answer.
async fn received_by_pod(oracle: &Oracle) -> Vec<String> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    oracle.take_lines()
}

async fn run_http1(direct: &str, oracle: &Oracle, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(direct).await.unwrap();
    // The resolver may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let (received, ended) = listen(&mut stream, |_| false).await;
    let responses = answers(&received);
    let pod_lines = received_by_pod(oracle).await;
    let delivered = pod_lines.iter().filter(|line| *line != "PART").count();
    let own = responses
        .iter()
        .filter(|(status, _)| status == "200")
        .count();
    let mut problem = String::new();
    if own != delivered {
        problem = format!(" | OUT OF STEP: received {responses:?}, the pod received {pod_lines:?}");
    }
    let mut after = "closed";
    if !ended {
        // A kept connection must be where the client thinks it is.
        stream
            .write_all(b"GET /same HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let (received, _) = listen(&mut stream, |_| false).await;
        let same = answers(&received);
        let pod_lines = received_by_pod(oracle).await;
        // A byte that was left over before it belongs to its method, for every parser.
        let in_step =
            pod_lines.len() == 1 && pod_lines.iter().all(|line| line.ends_with("GET /same 0"));
        let in_place = same == [("200".to_owned(), "/same".to_owned())] && in_step;
        let unfinished = pod_lines.iter().all(|line| !line.contains("/same 0"))
            && same.iter().all(|(_, body)| body != "/same");
        if !in_place && !unfinished {
            problem =
                format!(" | OUT OF STEP: then received {same:?}, the pod received {pod_lines:?}");
        }
        after = if in_place { "kept" } else { "unfinished" };
    }
    let responses: Vec<String> = responses
        .iter()
        .map(|(status, body)| {
            format!("{status} {}", shortened(body))
                .trim_end()
                .to_owned()
        })
        .collect();
    let pod_lines: Vec<String> = pod_lines.iter().map(|line| shortened(line)).collect();
    format!(
        "{} | {} | {after}{problem}",
        counted(&responses),
        counted(&pod_lines)
    )
}

/// The name of each frame that matters.
fn frame_names(mut bytes: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while bytes.len() >= 9 {
        let length =
            usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        let (kind, payload) = (bytes[3], bytes.get(9..9 + length).unwrap_or_default());
        let number = |at: usize| {
            payload
                .get(at..at + 4)
                .map_or(0, |four| u32::from_be_bytes(four.try_into().unwrap()))
        };
        match (kind, payload.first()) {
            (1, Some(0x88)) => all.push("200".into()),
            (1, Some(0x8c)) => all.push("400".into()),
            (1, Some(0x8d)) => all.push("404".into()),
            (1, _) => all.push("another status".into()),
            (3, _) => all.push(format!("reset {}", number(0))),
            (7, _) if number(4) != 0 || number(0) != 0x7fff_ffff => {
                all.push(format!("go away {}", number(4)))
            }
            _ => {}
        }
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
    all
}

async fn run_http2(direct: &str, oracle: &Oracle, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(direct).await.unwrap();
    let hello = [http2::PREFACE, &http2::frame(4, 0, 0, &[])].concat();
    stream.write_all(&hello).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    // Floods are answered while they come; a reader must take the answers, or both sides wait.
    let mut received = Vec::new();
    let mut piece = vec![0; 65_536];
    let writing = async {
        let _ = writer.write_all(bytes).await;
        std::future::pending::<()>().await;
    };
    let mut ended = false;
    tokio::select! {
        () = writing => {}
        () = async {
            loop {
                match timeout(SILENCE, reader.read(&mut piece)).await {
                    Ok(Ok(0) | Err(_)) => return ended = true,
                    Ok(Ok(read)) => received.extend_from_slice(&piece[..read]),
                    Err(_) => return,
                }
            }
        } => {}
    }
    let responses = frame_names(&received);
    let pod_lines = received_by_pod(oracle).await;
    let own = responses.iter().filter(|word| *word == "200").count();
    let delivered = pod_lines.iter().filter(|line| *line != "PART").count();
    // A request that its client reset may have reached the pod, and no client waits for the answer.
    let problem = if own > delivered {
        format!(" | OUT OF STEP: the pod received {pod_lines:?}")
    } else {
        String::new()
    };
    let mut after = "closed";
    if !ended {
        let _ = stream.write_all(&http2::get(90_001, "/same")).await;
        let (received, _) = listen(&mut stream, |_| false).await;
        let pod_lines = received_by_pod(oracle).await;
        let in_place = frame_names(&received) == ["200"] && pod_lines == ["GET /same 0"];
        after = if in_place { "kept" } else { "unfinished" };
    }
    let pod_lines: Vec<String> = pod_lines.iter().map(|line| shortened(line)).collect();
    format!(
        "{} | {} | {after}{problem}",
        counted(&responses),
        counted(&pod_lines)
    )
}

#[tokio::test(start_paused = true)]
async fn every_hostile_message_has_one_reading_and_no_connection_gets_out_of_step() {
    let (_fixture, oracle, direct) = start().await;
    let cases = http1::cases().into_iter().map(|case| (case, false));
    let cases: Vec<_> = cases
        .chain(http2::cases().into_iter().map(|case| (case, true)))
        .collect();
    assert!(cases.len() >= 100, "{}", cases.len());
    let mut found = String::new();
    for ((name, bytes), is_http2) in &cases {
        let outcome = if *is_http2 {
            run_http2(&direct, &oracle, bytes).await
        } else {
            run_http1(&direct, &oracle, bytes).await
        };
        // How far a flood comes before it is cut off is a matter of moments; that the next client is served is not.
        let outcome = if name.starts_with("h2: flood") && !outcome.contains("OUT OF STEP") {
            "survived".to_owned()
        } else {
            outcome
        };
        found.push_str(&format!("{name} | {outcome}\n"));
        // Whatever it was, the next client is not part of it.
        let fresh = http_get(&direct, "/fresh").await.body;
        let pod_lines = received_by_pod(&oracle).await;
        let whole: Vec<_> = pod_lines.iter().filter(|line| *line != "PART").collect();
        if fresh != "/fresh" || whole != ["GET /fresh 0"] {
            found.push_str(&format!(
                "{name} | OUT OF STEP: a fresh client received {fresh:?}, the pod received {pod_lines:?}\n"
            ));
        }
    }
    if std::env::var("ELASTI_CORPUS").is_ok_and(|word| word == "write") {
        std::fs::write(
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/resolver/corpus/expected.txt"
            ),
            &found,
        )
        .unwrap();
        return;
    }
    println!("{} cases", cases.len());
    let wrong = |line: &&str| line.contains("OUT OF STEP") || line.contains("UNCLEAN");
    let wrong: Vec<&str> = found.lines().filter(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (found, expected) in found.lines().zip(EXPECTED.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(
        found.lines().count(),
        EXPECTED.lines().count(),
        "cases without a line in expected.txt"
    );
}
