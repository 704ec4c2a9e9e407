//! One request on a new connection, and what became of it.
//! It never tries again: a client that retries hides what was lost.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Above every hold of these runs, also of two minutes without a node, and below Elasti's own hold deadline; a request
/// that takes longer hangs, and counts as lost.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Why a request got no whole answer of the app's own.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    /// No connection came about.
    Connect(String),
    /// The connection ended before the answer was whole.
    Broken(String),
    /// Something else answered: the first line, and the reason if it was Elasti.
    NotTheApp(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "no connection: {error}"),
            Self::Broken(error) => write!(f, "broken: {error}"),
            Self::NotTheApp(said) => write!(f, "not the app's own 200: {said}"),
        }
    }
}

/// What became of one request.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) sent_at: Instant,
    pub(crate) took: Duration,
    pub(crate) local_port: u16,
    /// Of a lost one: the pod or resolver that the node had sent it to, if connection tracking still knows.
    pub(crate) destination: Option<IpAddr>,
    pub(crate) result: Result<(), Lost>,
}

impl Outcome {
    /// Of a request that never left.
    pub(crate) fn unsent(lost: Lost) -> Self {
        Self {
            sent_at: Instant::now(),
            took: Duration::ZERO,
            local_port: 0,
            destination: None,
            result: Err(lost),
        }
    }
}

/// Sends `GET /anything/<id>` on a new connection; only a whole 200 that says the id is an answer.
pub(crate) fn send(to: SocketAddr, id: &str) -> Outcome {
    let sent_at = Instant::now();
    let mut local_port = 0;
    let result = connect(to, &mut local_port)
        .map_err(|error| Lost::Connect(error.to_string()))
        .and_then(|stream| exchange(stream, to, id));
    Outcome {
        sent_at,
        took: sent_at.elapsed(),
        local_port,
        destination: None,
        result,
    }
}

/// Connects from a port that is known even if the connection is refused: by it, the node's connection tracking tells where
/// the request was sent. The standard library keeps the port to itself then.
fn connect(to: SocketAddr, local_port: &mut u16) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    let local: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
    *local_port = local.port();
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    wait_for_connection(&socket)?;
    ioctl_fionbio(&socket, false)?;
    Ok(TcpStream::from(socket))
}

fn wait_for_connection(socket: &OwnedFd) -> io::Result<()> {
    let timeout = Timespec::try_from(TIMEOUT).map_err(io::Error::other)?;
    let mut writable = [PollFd::new(socket, PollFlags::OUT)];
    match poll(&mut writable, Some(&timeout))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(socket_error(socket)??),
    }
}

fn exchange(mut stream: TcpStream, to: SocketAddr, id: &str) -> Result<(), Lost> {
    let mut answer = Vec::new();
    let mut talk = || -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        write!(
            stream,
            "GET /anything/{id} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n"
        )?;
        stream.read_to_end(&mut answer)?;
        Ok(())
    };
    talk().map_err(|error| Lost::Broken(format!("{error} after {} bytes", answer.len())))?;
    judge(&String::from_utf8_lossy(&answer), id)
}

/// Whether this is the app's own whole answer to this request.
fn judge(answer: &str, id: &str) -> Result<(), Lost> {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return Err(Lost::Broken(format!("ended after {} bytes", answer.len())));
    };
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    if first.split(' ').nth(1) != Some("200") {
        let reason = header(crate::names::REASON_HEADER).unwrap_or("no reason");
        return Err(Lost::NotTheApp(format!("{first} ({reason}) {body}")));
    }
    let length: Option<usize> = header("content-length").and_then(|text| text.parse().ok());
    if length.is_some_and(|length| length != body.len()) || length.is_none() {
        return Err(Lost::Broken(format!("{} bytes of {length:?}", body.len())));
    }
    if !body.contains(&format!("/anything/{id}\"")) {
        return Err(Lost::NotTheApp(format!("{first} without the id {id}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Lost, judge};

    fn answer(code: &str, length: usize, body: &str) -> String {
        format!("HTTP/1.1 {code}\r\nContent-Length: {length}\r\n\r\n{body}")
    }

    #[test]
    fn only_the_whole_answer_to_this_request_counts() {
        let body = r#"{"url":"http://x/anything/a-7"}"#;
        assert!(judge(&answer("200 OK", body.len(), body), "a-7").is_ok());
        let others = judge(&answer("200 OK", body.len(), body), "a-8");
        assert!(matches!(others, Err(Lost::NotTheApp(_))));
        let cut = judge(&answer("200 OK", body.len() + 1, body), "a-7");
        assert!(matches!(cut, Err(Lost::Broken(_))));
        let refused = judge(&answer("503 Service Unavailable", 0, ""), "a-7");
        assert!(matches!(refused, Err(Lost::NotTheApp(_))));
        assert!(matches!(
            judge("HTTP/1.1 200 OK\r\n", "a-7"),
            Err(Lost::Broken(_))
        ));
    }
}
