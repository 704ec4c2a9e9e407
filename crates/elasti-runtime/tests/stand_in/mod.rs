//! A server in Sentry's place, on a thread of its own, that remembers what it was told.
//! Never knows what is told to it.
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
pub enum Temper {
    Kind,
    /// 429.
    Full,
    /// It reads and never answers.
    Silent,
    /// Nobody listens there any more.
    Gone,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Heard {
    pub head: String,
    pub body: String,
}

impl Heard {
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
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Sentry {
    pub fn start(temper: Temper) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        if temper != Temper::Gone {
            let heard = heard.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let heard = heard.clone();
                    std::thread::spawn(move || converse(&stream, temper, &heard));
                }
            });
        }
        Self { address, heard }
    }

    pub fn dsn(&self) -> String {
        format!("http://k3y@{}/7", self.address)
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

fn converse(stream: &TcpStream, temper: Temper, heard: &Mutex<Vec<Heard>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let mut one = Heard {
            head,
            body: String::new(),
        };
        let length = one.header("content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        one.body = String::from_utf8(body).unwrap();
        heard.lock().unwrap().push(one);
        let answer = match temper {
            Temper::Silent => continue,
            Temper::Full => {
                "HTTP/1.1 429 Too Many Requests\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n"
            }
            Temper::Kind | Temper::Gone => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        };
        if (&*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
