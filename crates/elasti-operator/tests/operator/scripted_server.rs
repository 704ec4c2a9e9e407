//! a server that sends any reply, byte by byte, and records its requests; and helpers that the tests share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Waits for a condition with a limit that only a broken build reaches.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = timeout(Duration::from_secs(600), async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Keeps a paused clock from leaping over a packet that is still in flight: it moves in small steps, each of which
/// takes a little real time.
pub async fn small_steps() {
    loop {
        sleep(Duration::from_millis(5)).await;
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    /// The decoded parameter `query`.
    pub query: String,
    pub head: String,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// These bytes, and the connection stays.
    Keep(Vec<u8>),
    /// These bytes after a while, then the end.
    After(Duration, Vec<u8>),
    /// These bytes, then silence.
    Hang(Vec<u8>),
    /// These bytes, one a second.
    Drip(Vec<u8>),
    /// The first bytes, then the second ones for ever.
    Endless(Vec<u8>, Vec<u8>),
}

type Script = Arc<dyn Fn(&Received) -> Reply + Send + Sync>;

/// A running server.
pub struct ScriptedServer {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<AtomicUsize>,
    most_at_once: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl ScriptedServer {
    pub async fn start(script: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let most_at_once = Arc::<AtomicUsize>::default();
        let now = Arc::<AtomicUsize>::default();
        let script: Script = Arc::new(script);
        let mut tasks = JoinSet::new();
        tasks.spawn(small_steps());
        let (a, c, m) = (received.clone(), connections.clone(), most_at_once.clone());
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                c.fetch_add(1, Ordering::SeqCst);
                let (script, received, now, most) =
                    (script.clone(), a.clone(), now.clone(), m.clone());
                serving.spawn(async move {
                    let at_once = now.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(at_once, Ordering::SeqCst);
                    let _ = serve(stream, script, received).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            received,
            connections,
            most_at_once,
            _tasks: tasks,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn most_at_once(&self) -> usize {
        self.most_at_once.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Script,
    received: Arc<Mutex<Vec<Received>>>,
) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let (path, parameters) = target.split_once('?').unwrap_or((&target, ""));
        let query = parameters
            .split('&')
            .find_map(|pair| pair.strip_prefix("query="));
        let question = Received {
            path: path.to_owned(),
            query: decoded(query.unwrap_or_default()),
            head,
        };
        received.lock().push(question.clone());
        match script(&question) {
            Reply::Bytes(bytes) => return stream.write_all(&bytes).await,
            Reply::Keep(bytes) => stream.write_all(&bytes).await?,
            Reply::After(pause, bytes) => {
                sleep(pause).await;
                return stream.write_all(&bytes).await;
            }
            Reply::Hang(bytes) => {
                stream.write_all(&bytes).await?;
                return std::future::pending().await;
            }
            Reply::Drip(bytes) => {
                for byte in bytes {
                    stream.write_u8(byte).await?;
                    sleep(Duration::from_secs(1)).await;
                }
                return Ok(());
            }
            Reply::Endless(first, again) => {
                stream.write_all(&first).await?;
                loop {
                    stream.write_all(&again).await?;
                }
            }
        }
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex = [rest.next().unwrap(), rest.next().unwrap()];
                let hex = std::str::from_utf8(&hex).unwrap();
                bytes.push(u8::from_str_radix(hex, 16).unwrap());
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// A whole answer.
pub fn answer(code: u16, more_head: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!(
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\n{more_head}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// What Prometheus says to a query with one series.
pub fn one_series(value: &str) -> String {
    format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[1700000000.1,"{value}"]}}]}}}}"#
    )
}
