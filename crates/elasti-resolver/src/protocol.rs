//! What a connection speaks: what the Service port's `appProtocol` declares, or what the first bytes look like.
//! Never takes a byte out of the connection: it only peeks.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, sleep, timeout_at};

use crate::net::TcpStream;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// Anything else; bytes are relayed as they are.
    Tcp,
    /// Not known yet: it has sent nothing for a moment.
    Silent,
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client that sends nothing for this long may wait for the server to speak first, so a pod gets the chance to.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(200);
/// The start of a head that came in parts is complete by then, or it is no head that we know.
const PARTIAL_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A peek returns the same bytes again at once, so a head in parts is polled: after 5 ms, 10 ms, ... 320 ms, 320 ms.
/// 5 s take 21 polls; a client that sends byte by byte costs no more.
const FIRST_POLL: Duration = Duration::from_millis(5);
const LAST_POLL: Duration = Duration::from_millis(320);
/// The first byte of a TLS connection, a handshake record; no text protocol begins with it.
pub(crate) const TLS_FIRST_BYTE: u8 = 0x16;

/// What a connection is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedAs {
    Http,
    Tls,
    /// Anything else, and a client that has sent nothing yet.
    Tcp,
}

impl CountedAs {
    /// The metric's label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tls => "tls",
            Self::Tcp => "tcp",
        }
    }

    /// By what has come so far; takes nothing and waits for nothing.
    pub(crate) fn so_far(stream: &TcpStream, declared: Declared) -> Self {
        let mut bytes = [0; 24];
        let peeked = stream.peek(&mut bytes).now_or_never();
        let length = peeked.and_then(Result::ok).unwrap_or(0);
        Self::from_start(bytes.get(..length).unwrap_or_default(), declared)
    }

    fn from_start(start: &[u8], declared: Declared) -> Self {
        match (start, declared) {
            ([TLS_FIRST_BYTE, ..], _) => Self::Tls,
            (_, Declared::Http) => Self::Http,
            (_, Declared::Other) | ([], _) => Self::Tcp,
            (start, Declared::Unknown) => match sniff(start) {
                Some(Protocol::Tcp) => Self::Tcp,
                _ => Self::Http,
            },
        }
    }
}

/// What the Service port's `appProtocol` declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    /// HTTP in one of its versions.
    Http,
    /// Anything else.
    Other,
    /// Nothing, or it is not known yet.
    Unknown,
}

impl Declared {
    pub(crate) fn from_app_protocol(app_protocol: Option<&str>) -> Self {
        const HTTP: [&str; 6] = [
            "http",
            "http2",
            "grpc",
            "h2c",
            "kubernetes.io/h2c",
            "kubernetes.io/ws",
        ];
        match app_protocol {
            None | Some("") => Self::Unknown,
            Some(word) if HTTP.iter().any(|http| word.eq_ignore_ascii_case(http)) => Self::Http,
            Some(_) => Self::Other,
        }
    }
}

/// What this connection speaks; `None` if it ended, or sent too little of an HTTP head for too long.
pub(crate) async fn detect(
    stream: &TcpStream,
    declared: Declared,
    header_timeout: Duration,
) -> Option<Protocol> {
    let silence = match declared {
        Declared::Http => header_timeout,
        Declared::Other | Declared::Unknown => SILENCE_TIMEOUT,
    };
    detect_within(stream, declared, silence).await
}

/// The same, with this long for the first byte whatever was declared.
pub(crate) async fn detect_within(
    stream: &TcpStream,
    declared: Declared,
    silence: Duration,
) -> Option<Protocol> {
    if declared == Declared::Other {
        return Some(Protocol::Tcp);
    }
    let unknown = declared == Declared::Unknown;
    let first_byte_by = Instant::now() + silence;
    let mut complete_by = None;
    let mut poll = FIRST_POLL;
    let mut bytes = [0; 24];
    loop {
        let deadline = complete_by.unwrap_or(first_byte_by).max(first_byte_by);
        let Ok(peeked) = timeout_at(deadline, stream.peek(&mut bytes)).await else {
            return unknown.then_some(Protocol::Silent);
        };
        let start = bytes.get(..peeked.ok()?)?;
        if start.is_empty() {
            // It closed its side before the first byte.
            return unknown.then_some(Protocol::Tcp);
        }
        if let Some(protocol) = sniff(start) {
            let tls = start.first() == Some(&TLS_FIRST_BYTE);
            let invalid = !unknown && protocol == Protocol::Tcp && !tls;
            // What was declared as HTTP and is none gets hyper's 400.
            return Some(if invalid { Protocol::Http1 } else { protocol });
        }
        if Instant::now() >= *complete_by.get_or_insert(Instant::now() + PARTIAL_HEAD_TIMEOUT) {
            return unknown.then_some(Protocol::Tcp);
        }
        sleep(poll).await;
        poll = next_poll(poll);
    }
}

fn next_poll(last: Duration) -> Duration {
    (last * 2).min(LAST_POLL)
}

/// Ends if a connection begins with the preface of HTTP/2, which is whole soon after its first byte.
pub(crate) async fn speaks_http2(stream: &TcpStream) {
    let (mut poll, mut complete_by) = (FIRST_POLL, None);
    let mut bytes = [0; PREFACE.len()];
    while let Ok(length @ 1..) = stream.peek(&mut bytes).await {
        match bytes.get(..length).and_then(sniff) {
            Some(Protocol::Http2) => return,
            // A preface in parts; every other start is none.
            None if bytes
                .get(..length)
                .is_some_and(|start| PREFACE.starts_with(start)) =>
            {
                let now = Instant::now();
                if now >= *complete_by.get_or_insert(now + PARTIAL_HEAD_TIMEOUT) {
                    break;
                }
                sleep(poll).await;
                poll = next_poll(poll);
            }
            Some(_) | None => break,
        }
    }
    std::future::pending().await
}

/// What the first bytes look like; `None` while they could still become either.
pub(crate) fn sniff(start: &[u8]) -> Option<Protocol> {
    if PREFACE.starts_with(start) {
        return (start.len() == PREFACE.len()).then_some(Protocol::Http2);
    }
    // A method of at most 20 capitals, a space, and the start of a target: `/path`, `*`, `http://...` or, for CONNECT, a host.
    let method = start
        .iter()
        .take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-')
        .count();
    match (start.get(method), start.get(method.saturating_add(1))) {
        _ if method == 0 || method > 20 => Some(Protocol::Tcp),
        (None, _) | (Some(b' '), None) => None,
        (Some(b' '), Some(b'/' | b'*' | b'h' | b'H')) => Some(Protocol::Http1),
        (Some(b' '), Some(_)) if start.starts_with(b"CONNECT ") => Some(Protocol::Http1),
        (Some(_), _) => Some(Protocol::Tcp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_http_from_everything_else() {
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], Some(Protocol::Http1)),
            (b"PROPFIND /a", Some(Protocol::Http1)),
            (b"OPTIONS * HTTP/1.1", Some(Protocol::Http1)),
            (b"CONNECT cart:80", Some(Protocol::Http1)),
            (b"GE", None),
            (b"GET ", None),
            (PREFACE, Some(Protocol::Http2)),
            (b"PRI * HTTP/2.0\r\n", None),
            (b"PRI * HTTP/1.1\r\n", Some(Protocol::Http1)),
            (&[0x16, 0x03, 0x01], Some(Protocol::Tcp)),
            (b"SET a 1\r\n", Some(Protocol::Tcp)),
            (b"PING\r\n", Some(Protocol::Tcp)),
            (b"*1\r\n$4\r\nPING\r\n", Some(Protocol::Tcp)),
            (b"SSH-2.0-x", Some(Protocol::Tcp)),
        ] {
            assert_eq!(sniff(bytes), expected, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_is_counted_follows_the_first_byte_and_what_was_declared() {
        use Declared::{Http, Other, Unknown};
        for (start, declared, expected) in [
            (&b"\x16\x03"[..], Http, CountedAs::Tls),
            (b"\x16\x03", Other, CountedAs::Tls),
            (b"GET / HT", Other, CountedAs::Tcp),
            (b"GET / HT", Unknown, CountedAs::Http),
            (b"GE", Unknown, CountedAs::Http),
            (b"", Unknown, CountedAs::Tcp),
            (b"", Http, CountedAs::Http),
            (b"SET a 1", Unknown, CountedAs::Tcp),
        ] {
            let counted = CountedAs::from_start(start, declared);
            assert_eq!(counted, expected, "{start:?} {declared:?}");
        }
    }

    #[test]
    fn a_head_that_never_ends_is_polled_a_few_times_only() {
        let (mut passed, mut poll, mut polls) = (Duration::ZERO, FIRST_POLL, 0);
        while passed < PARTIAL_HEAD_TIMEOUT {
            passed += poll;
            poll = next_poll(poll);
            polls += 1;
        }
        assert_eq!(polls, 21);
    }

    #[cfg(not(feature = "simulation"))]
    #[tokio::test(start_paused = true)]
    async fn a_preface_that_takes_longer_than_a_head_may_is_not_waited_for() {
        use tokio::io::AsyncWriteExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for (pause, in_time) in [(1, true), (6, false)] {
            let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            client.write_all(&PREFACE[..1]).await.unwrap();
            let send_rest = async {
                sleep(Duration::from_secs(pause)).await;
                client.write_all(&PREFACE[1..]).await.unwrap();
                std::future::pending::<()>().await;
            };
            let spoken = tokio::select! {
                () = speaks_http2(&stream) => true,
                () = send_rest => false,
                () = sleep(Duration::from_secs(60)) => false,
            };
            assert_eq!(spoken, in_time, "after {pause} s");
        }
    }

    #[test]
    fn a_declared_protocol_counts() {
        for (word, expected) in [
            (Some("kubernetes.io/h2c"), Declared::Http),
            (Some("HTTP"), Declared::Http),
            (Some("https"), Declared::Other),
            (Some("mysql"), Declared::Other),
            (Some(""), Declared::Unknown),
            (None, Declared::Unknown),
        ] {
            assert_eq!(Declared::from_app_protocol(word), expected, "{word:?}");
        }
    }
}
