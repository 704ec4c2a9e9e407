//! A visitor: one request on a connection of its own.
//! Never retries: what is lost is lost.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The app's own answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The pod that says it answered.
    pub(crate) pod: String,
    /// Whether the app saw the fields that a resolver adds to what it forwards.
    pub(crate) through_resolver: bool,
}

/// A request without the app's own whole answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("the connection failed: {0}")]
    Broken(String),
    #[error("no answer within {} ms", .0.as_millis())]
    Hung(Duration),
    #[error("an answer that is not the app's: {0}")]
    Foreign(String),
}

/// One GET.
pub(crate) async fn visit(address: SocketAddr, patience: Duration) -> Result<Answer, Lost> {
    let exchange = timeout(patience, exchange(address)).await;
    let text = exchange
        .map_err(|_| Lost::Hung(patience))?
        .map_err(|error| Lost::Broken(error.to_string()))?;
    read(&text).ok_or_else(|| Lost::Foreign(text.lines().next().unwrap_or("nothing").to_owned()))
}

async fn exchange(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The app tells what it was asked, as JSON.
fn read(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1)? != "200" {
        return None;
    }
    let told: Value = serde_json::from_str(body).ok()?;
    Some(Answer {
        pod: told.get("pod")?.as_str()?.to_owned(),
        through_resolver: told.get("headers")?.get("x-forwarded-for").is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn only_the_apps_own_whole_answer_counts() {
        let body = r#"{"pod":"web-1","headers":{"x-forwarded-for":"127.0.0.1"}}"#;
        let answer = read(&format!("HTTP/1.1 200 OK\r\na: b\r\n\r\n{body}")).unwrap();
        assert!(answer.through_resolver);
        assert_eq!(answer.pod, "web-1");
        assert!(read(&format!("HTTP/1.1 503 No\r\n\r\n{body}")).is_none());
        assert!(read(&format!("HTTP/1.1 200 OK\r\n\r\n{}", &body[..20])).is_none());
        assert!(read("").is_none());
    }
}
