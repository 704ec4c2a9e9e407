//! What a connection speaks: what the Service port's `appProtocol` says, or what the first bytes look like.
//! Never takes a byte out of the connection: it only peeks.

use std::time::Duration;

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
    /// Nobody knows yet: it has said nothing for a moment.
    Silent,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client that says nothing for this long may wait for the server to speak, so a pod gets the chance to.
const SILENCE: Duration = Duration::from_millis(200);
/// The start of a head that came in parts is complete by then, or it is no head that we know.
const IN_PARTS: Duration = Duration::from_secs(5);
/// A peek sees the same bytes again at once, so a head in parts is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What `appProtocol` says: HTTP in one of its versions, something else, or nothing.
fn is_http(app_protocol: Option<&str>) -> Option<bool> {
    let word = app_protocol?.to_ascii_lowercase();
    match word.as_str() {
        "http" | "http2" | "grpc" | "h2c" | "kubernetes.io/h2c" | "kubernetes.io/ws" => Some(true),
        "" => None,
        _ => Some(false),
    }
}

/// What this connection speaks; `None` if it ended or said too little of an HTTP head for too long.
pub(crate) async fn of(
    stream: &TcpStream,
    app_protocol: Option<&str>,
    header_patience: Duration,
) -> Option<Protocol> {
    let declared = is_http(app_protocol);
    let silence = if declared == Some(true) {
        header_patience
    } else {
        SILENCE
    };
    look(stream, declared, silence).await
}

/// The same for a client that is to hear a refusal: it has this long to say a word, whatever was declared. Who speaks
/// no HTTP hears none.
pub(crate) async fn of_refused(
    stream: &TcpStream,
    app_protocol: Option<&str>,
    patience: Duration,
) -> Option<Protocol> {
    look(stream, is_http(app_protocol), patience).await
}

async fn look(stream: &TcpStream, declared: Option<bool>, silence: Duration) -> Option<Protocol> {
    if declared == Some(false) {
        return Some(Protocol::Tcp);
    }
    let speaks_by = Instant::now() + silence;
    let mut whole_by = None;
    let mut bytes = [0; 24];
    loop {
        let patience = whole_by.unwrap_or(speaks_by).max(speaks_by);
        let Ok(peeked) = timeout_at(patience, stream.peek(&mut bytes)).await else {
            return declared.is_none().then_some(Protocol::Silent);
        };
        let seen = bytes.get(..peeked.ok()?)?;
        if seen.is_empty() {
            // It closed its side without a word.
            return declared.is_none().then_some(Protocol::Tcp);
        }
        if let Some(protocol) = of_bytes(seen) {
            let http = declared == Some(true) && protocol == Protocol::Tcp;
            // What was declared as HTTP and is none gets HTTP's own 400.
            return Some(if http { Protocol::Http1 } else { protocol });
        }
        if Instant::now() >= *whole_by.get_or_insert(Instant::now() + IN_PARTS) {
            return declared.is_none().then_some(Protocol::Tcp);
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// What the first bytes look like; `None` while they could still become either.
pub(crate) fn of_bytes(seen: &[u8]) -> Option<Protocol> {
    if PREFACE.starts_with(seen) {
        return (seen.len() == PREFACE.len()).then_some(Protocol::Http2);
    }
    // A method of at most 20 capitals, a space, and the start of a target: `/path`, `*`, `http://...` or, for CONNECT, a host.
    let method = seen
        .iter()
        .take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-')
        .count();
    match (seen.get(method), seen.get(method.saturating_add(1))) {
        _ if method == 0 || method > 20 => Some(Protocol::Tcp),
        (None, _) | (Some(b' '), None) => None,
        (Some(b' '), Some(b'/' | b'*' | b'h' | b'H')) => Some(Protocol::Http1),
        (Some(b' '), Some(_)) if seen.starts_with(b"CONNECT ") => Some(Protocol::Http1),
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
            assert_eq!(
                of_bytes(bytes),
                expected,
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn a_declared_protocol_counts() {
        assert_eq!(is_http(Some("kubernetes.io/h2c")), Some(true));
        assert_eq!(is_http(Some("HTTP")), Some(true));
        assert_eq!(is_http(Some("https")), Some(false));
        assert_eq!(is_http(Some("mysql")), Some(false));
        assert_eq!(is_http(None), None);
    }
}
