//! A fake Sentry on a thread of its own, which records what it received.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// 200.
    Accepts,
    /// 429.
    TooManyRequests,
    /// It reads and never answers.
    Silent,
    /// Nothing listens there any more.
    Gone,
}

/// One request.
#[derive(Clone, Debug)]
pub struct SentryRequest {
    pub head: String,
    pub body: String,
}

impl SentryRequest {
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

pub struct Sentry {
    address: SocketAddr,
    received: Arc<Mutex<Vec<SentryRequest>>>,
}

impl Sentry {
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<SentryRequest>>> = Arc::default();
        if behaviour != Behaviour::Gone {
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

    pub fn dsn(&self) -> String {
        format!("http://k3y@{}/7", self.address)
    }

    pub fn received(&self) -> Vec<SentryRequest> {
        self.received.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, behaviour: Behaviour, received: &Mutex<Vec<SentryRequest>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let mut one = SentryRequest {
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
        let answer = match behaviour {
            Behaviour::Silent => continue,
            Behaviour::TooManyRequests => {
                "HTTP/1.1 429 Too Many Requests\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n"
            }
            Behaviour::Accepts | Behaviour::Gone => {
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
            }
        };
        if (&*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
