//! HTTP clients: one with a new connection for each request, and one that keeps its connection open.
//! Neither sends a request again that an app may have seen: a retry would hide a loss.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a visitor waits; the longest hold in these tests is far shorter.
const TIMEOUT: Duration = Duration::from_secs(280);

/// An answer as a client hears it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status line and headers.
    pub head: String,
    /// Everything after them.
    pub body: String,
}

impl Answer {
    /// The status code.
    #[must_use]
    pub fn code(&self) -> u16 {
        let code = self.head.split(' ').nth(1);
        code.and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// One header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// A request that got no whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The connection was refused.
    Refused(String),
    /// The connection broke.
    Broken(String),
    /// Nothing came for long.
    Hung,
    /// Something came, but not a whole answer.
    Cut(String),
}

/// One GET.
///
/// # Errors
/// If no whole answer came.
pub async fn get(address: &str, path: &str) -> Result<Answer, Lost> {
    get_of(address, "test", path).await
}

/// One GET that names this host.
///
/// # Errors
/// If no whole answer came.
pub async fn get_of(address: &str, host: &str, path: &str) -> Result<Answer, Lost> {
    let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    match timeout(TIMEOUT, exchange(address, &text)).await {
        Ok(answer) => answer,
        Err(_) => Err(Lost::Hung),
    }
}

/// One POST of JSON with a bearer token.
///
/// # Errors
/// If no whole answer came.
pub(crate) async fn post(
    address: &str,
    path: &str,
    token: &str,
    body: &str,
) -> Result<Answer, Lost> {
    let length = body.len();
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    match timeout(TIMEOUT, exchange(address, &text)).await {
        Ok(answer) => answer,
        Err(_) => Err(Lost::Hung),
    }
}

/// The first line of a server that speaks first.
///
/// # Errors
/// If no whole line came.
pub async fn greeting(address: &str) -> Result<String, Lost> {
    match timeout(TIMEOUT, read_line(address)).await {
        Ok(line) => line,
        Err(_) => Err(Lost::Hung),
    }
}

async fn read_line(address: &str) -> Result<String, Lost> {
    let refused = |error: std::io::Error| Lost::Refused(error.to_string());
    let broken = |error: std::io::Error| Lost::Broken(error.to_string());
    let stream = TcpStream::connect(address).await.map_err(refused)?;
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut line).await.map_err(broken)?;
    if line.ends_with('\n') {
        Ok(line)
    } else {
        Err(Lost::Cut(line))
    }
}

async fn exchange(address: &str, text: &str) -> Result<Answer, Lost> {
    let refused = |error: std::io::Error| Lost::Refused(error.to_string());
    let broken = |error: std::io::Error| Lost::Broken(error.to_string());
    let mut stream = TcpStream::connect(address).await.map_err(refused)?;
    stream.write_all(text.as_bytes()).await.map_err(broken)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(broken)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) => Ok(Answer {
            head: head.to_owned(),
            body: body.to_owned(),
        }),
        None => Err(Lost::Cut(answer)),
    }
}

/// A client that keeps its connection open from one request to the next.
#[derive(Debug, Default)]
pub struct KeepAliveClient {
    stream: Option<TcpStream>,
}

impl KeepAliveClient {
    /// One GET. On a connection that turns out to be closed before any byte of an answer came it is sent once more on
    /// a new one, as every HTTP client does (RFC 9112, 9.3.1): a server may close an idle connection at any time.
    ///
    /// # Errors
    /// If no whole answer came.
    pub async fn get(&mut self, address: &str, path: &str) -> Result<Answer, Lost> {
        let text = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        if let Some(stream) = self.stream.take() {
            match timeout(TIMEOUT, exchange_keep_alive(stream, &text)).await {
                Ok(Err(Lost::Broken(_))) => {}
                outcome => return self.keep(outcome.unwrap_or(Err(Lost::Hung))),
            }
        }
        let refused = |error: std::io::Error| Lost::Refused(error.to_string());
        let stream = TcpStream::connect(address).await.map_err(refused)?;
        let outcome = timeout(TIMEOUT, exchange_keep_alive(stream, &text)).await;
        self.keep(outcome.unwrap_or(Err(Lost::Hung)))
    }

    fn keep(&mut self, outcome: Result<(Answer, TcpStream), Lost>) -> Result<Answer, Lost> {
        let (answer, stream) = outcome?;
        let closes = answer.header("connection");
        if !closes.is_some_and(|word| word.eq_ignore_ascii_case("close")) {
            self.stream = Some(stream);
        }
        Ok(answer)
    }
}

/// One request and its answer, by its length; `Broken` means that no byte of an answer came.
async fn exchange_keep_alive(
    mut stream: TcpStream,
    text: &str,
) -> Result<(Answer, TcpStream), Lost> {
    let broken = |error: std::io::Error| Lost::Broken(error.to_string());
    stream.write_all(text.as_bytes()).await.map_err(broken)?;
    let mut received = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let answer = Answer {
                head: head.to_owned(),
                body: body.to_owned(),
            };
            let length = answer.header("content-length");
            let length = length.and_then(|length| length.parse::<usize>().ok());
            let length = length.ok_or_else(|| Lost::Cut(text.clone()))?;
            if body.len() >= length {
                return Ok((answer, stream));
            }
        }
        match stream.read_buf(&mut received).await {
            Ok(0) if received.is_empty() => return Err(Lost::Broken("closed".into())),
            Err(error) if received.is_empty() => return Err(broken(error)),
            Ok(0) => return Err(Lost::Cut(text)),
            Err(error) => return Err(Lost::Cut(format!("{error}: {text}"))),
            Ok(_) => {}
        }
    }
}
