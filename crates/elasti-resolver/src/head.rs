//! Peeks at the head of a request that is still in the kernel, for services that may answer it without a pod.
//! What cannot be parsed here is left to hyper, which reads and refuses it.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::net::TcpStream;

/// Heads beyond this are rare (browsers stay below 4 KiB) and are read by hyper at once.
const PEEKED_BYTES: usize = 8 * 1024;
/// As many as hyper takes.
const PEEKED_HEADERS: usize = 100;

/// The head at the front of an HTTP/1 connection; `None` unless it is there whole and plain to read.
pub(crate) async fn peek(stream: &TcpStream) -> Option<Request<()>> {
    let mut bytes = vec![0; PEEKED_BYTES];
    let length = stream.peek(&mut bytes).await.ok()?;
    parse(bytes.get(..length)?)
}

fn parse(bytes: &[u8]) -> Option<Request<()>> {
    let mut lines = [httparse::EMPTY_HEADER; PEEKED_HEADERS];
    let mut head = httparse::Request::new(&mut lines);
    if !head.parse(bytes).ok()?.is_complete() {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for line in head.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(line.value).ok()?);
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method?.as_bytes()).ok()?;
    *request.uri_mut() = Uri::try_from(head.path?).ok()?;
    *request.headers_mut() = headers;
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_whole_head_is_parsed_and_its_body_is_not() {
        let head =
            parse(b"POST /a?b=c HTTP/1.1\r\nHost: cart\r\nX-A: 1\r\nx-a: 2\r\n\r\nbody").unwrap();
        assert_eq!((head.method().as_str(), head.uri().path()), ("POST", "/a"));
        assert_eq!(head.headers().get_all("x-a").iter().count(), 2);
    }

    #[test]
    fn what_is_not_whole_or_not_plain_is_left_to_hyper() {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: cart\r\n"[..],
            b"GET / HTTP/1.1\r\nHost : cart\r\n\r\n",
            b"\x16\x03\x01\r\n\r\n",
            b"",
        ] {
            assert!(parse(bytes).is_none(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
