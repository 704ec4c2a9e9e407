//! The pod of the corpus: a parser that takes nothing but plain HTTP/1.1, and records what it received; h2c goes to hyper.
//! Never lenient: a message with a second reading is unclean, and unclean messages fail the corpus.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What the pod received, one line a message.
#[derive(Clone, Default)]
pub struct Oracle {
    lines: Arc<Mutex<Vec<String>>>,
}

/// One message, and how many bytes it took.
struct Message {
    line: String,
    target: String,
    head: bool,
    took: usize,
}

impl Oracle {
    pub async fn start(address: (IpAddr, u16)) -> Self {
        let oracle = Self::default();
        let listener = TcpListener::bind(address).await.unwrap();
        let inside = oracle.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(inside.clone().serve(stream));
            }
        });
        oracle
    }

    /// What it received since the last call.
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut first = [0; 4];
        if matches!(stream.peek(&mut first).await, Ok(4)) && &first == b"PRI " {
            return self.serve_http2(stream).await;
        }
        let (mut bytes, mut piece) = (Vec::new(), [0; 16_384]);
        loop {
            match parse(&bytes) {
                Ok(Some(message)) => {
                    bytes.drain(..message.took);
                    self.lines.lock().push(message.line);
                    let body = if message.head { "" } else { &message.target };
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                        message.target.len()
                    );
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
                Ok(None) => match stream.read(&mut piece).await {
                    Ok(0) | Err(_) => {
                        if !bytes.is_empty() {
                            self.lines.lock().push("PART".into());
                        }
                        return;
                    }
                    Ok(read) => bytes.extend_from_slice(&piece[..read]),
                },
                Err(why) => {
                    self.lines.lock().push(format!(
                        "UNCLEAN {why}: {:?}",
                        String::from_utf8_lossy(&bytes)
                    ));
                    return;
                }
            }
        }
    }

    async fn serve_http2(self, stream: TcpStream) {
        let service = service_fn(move |request: Request<Incoming>| {
            let lines = self.lines.clone();
            async move {
                let (head, body) = request.into_parts();
                let target = head
                    .uri
                    .path_and_query()
                    .map_or_else(String::new, ToString::to_string);
                let line = match body.collect().await {
                    Ok(body) => format!("{} {target} {}", head.method, body.to_bytes().len()),
                    Err(_) => "PART".to_owned(),
                };
                lines.lock().push(line);
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(target))))
            }
        });
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drop(server.serve_connection(TokioIo::new(stream), service).await);
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn number(text: &str, radix: u32) -> Result<usize, String> {
    let digits = !text.is_empty() && text.chars().all(|letter| letter.is_digit(radix));
    digits
        .then(|| usize::from_str_radix(text, radix).ok())
        .flatten()
        .ok_or_else(|| format!("a length of {text:?}"))
}

/// The next message, nothing while it is incomplete, or what is wrong with it.
fn parse(bytes: &[u8]) -> Result<Option<Message>, String> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    // Bytes above 127 may stand in a value; as Latin-1 each is one letter.
    let head: String = bytes[..end].iter().copied().map(char::from).collect();
    if head
        .replace("\r\n", "")
        .chars()
        .any(|letter| letter.is_ascii_control() && letter != '\t')
    {
        return Err("a control character in the head".into());
    }
    let mut lines = head.split("\r\n");
    let parts: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.1"] = parts.as_slice() else {
        return Err("the request line".into());
    };
    if !is_token(method) || !(target.starts_with('/') || *target == "*") {
        return Err("method or target".into());
    }
    let (mut length, mut chunked, mut hosts) = (None, false, 0);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("a header without colon")?;
        if !is_token(name) {
            return Err(format!("a header named {name:?}"));
        }
        match name.to_ascii_lowercase().as_str() {
            "content-length" if length.is_none() => length = Some(number(value.trim(), 10)?),
            "transfer-encoding" if !chunked && value.trim() == "chunked" => chunked = true,
            "content-length" | "transfer-encoding" => return Err("framing twice".into()),
            "host" => hosts += 1,
            "connection" | "upgrade" | "keep-alive" | "te" | "proxy-connection" => {
                return Err(format!("{name} of another hop"));
            }
            _ => {}
        }
    }
    if length.is_some() && chunked {
        return Err("two ways of framing".into());
    }
    if hosts > 1 {
        return Err("two hosts".into());
    }
    let body = &bytes[end + 4..];
    let (size, took) = match (chunked, length) {
        (true, _) => match chunks(body)? {
            Some(found) => found,
            None => return Ok(None),
        },
        (false, length) => (length.unwrap_or(0), length.unwrap_or(0)),
    };
    Ok((body.len() >= took).then(|| Message {
        line: format!("{method} {target} {size}"),
        target: (*target).to_owned(),
        head: *method == "HEAD",
        took: end + 4 + took,
    }))
}

/// The size of a chunked body and how many bytes it took.
fn chunks(body: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let (mut at, mut size) = (0, 0);
    loop {
        let Some(line) = body[at..].windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let length = number(
            std::str::from_utf8(&body[at..at + line]).map_err(|_| "not text")?,
            16,
        )?;
        at += line + 2;
        if length == 0 {
            // Trailers end with an empty line.
            loop {
                let Some(line) = body[at..].windows(2).position(|two| two == b"\r\n") else {
                    return Ok(None);
                };
                at += line + 2;
                if line == 0 {
                    return Ok(Some((size, at)));
                }
            }
        }
        if body.len() < at + length + 2 {
            return Ok(None);
        }
        if &body[at + length..at + length + 2] != b"\r\n" {
            return Err("a chunk without its end".into());
        }
        size += length;
        at += length + 2;
    }
}
