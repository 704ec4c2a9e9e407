//! A stub of Sentry on a thread of its own; it records what it receives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// How it responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Accepts,
    /// 429.
    RateLimited,
    /// It reads and never responds.
    Silent,
    /// Its port is closed.
    Unreachable,
}

/// One request.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub head: String,
    pub body: String,
}

impl ReceivedRequest {
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// The event in the envelope: after its own line and the item's.
    pub fn event(&self) -> Value {
        let lines: Vec<&str> = self.body.lines().collect();
        let [envelope, item, event] = lines.as_slice() else {
            panic!("{self:?}");
        };
        let [envelope, item, whole]: [Value; 3] =
            [*envelope, *item, *event].map(|line| serde_json::from_str(line).unwrap());
        assert_eq!(item["type"], "event");
        assert_eq!(item["length"], event.len());
        assert_eq!(envelope["event_id"], whole["event_id"]);
        whole
    }
}

pub struct SentryStub {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl SentryStub {
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        if behaviour != Behaviour::Unreachable {
            let received = received.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let received = received.clone();
                    std::thread::spawn(move || serve(&stream, behaviour, &received));
                }
            });
        }
        Self { address, received }
    }

    /// For whatever else is posted to somewhere.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn dsn(&self) -> String {
        format!("http://k3y@{}/7", self.address)
    }

    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, behaviour: Behaviour, received: &Mutex<Vec<ReceivedRequest>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let mut one = ReceivedRequest {
            head,
            body: String::new(),
        };
        let length = one.header("content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        one.body = String::from_utf8(body).unwrap();
        received.lock().unwrap().push(one);
        let response = match behaviour {
            Behaviour::Silent => continue,
            Behaviour::RateLimited => {
                "HTTP/1.1 429 Too Many Requests\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n"
            }
            Behaviour::Accepts | Behaviour::Unreachable => {
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
            }
        };
        if (&*stream).write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}
