//! Ten thousand held requests, then a pod: all answered, within stated bounds of memory.
//! The resolver runs in a process of its own, this test binary once more, so that its clients are not measured.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;

use elasti_testkit::fixture::{Fixture, HTTP, service, until};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const MANY: usize = 10_000;
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// How the requests of the second process are held.
const HELD: &str = "ELASTI_TEST_HELD";

/// One at a time: each takes more than half of the descriptors that a process may have.
static SERIAL: Mutex<()> = Mutex::new(());

/// What ten thousand may cost at most.
struct Bounds {
    each: usize,
    /// The whole process: the resolver, and the simulated cluster with the pod.
    peak: usize,
}

#[test]
fn ten_thousand_unread_requests_cost_4_kib_each_and_are_all_answered() {
    let bounds = Bounds {
        each: 4 * KIB,
        peak: 256 * MIB,
    };
    hold_and_release("unread", &bounds);
}

/// Their heads are judged from outside, because probe rules could answer them.
#[test]
fn ten_thousand_judged_requests_cost_16_kib_each_and_are_all_answered() {
    let bounds = Bounds {
        each: 16 * KIB,
        peak: 256 * MIB,
    };
    hold_and_release("judged", &bounds);
}

fn hold_and_release(how: &str, bounds: &Bounds) {
    let _serial = SERIAL.lock();
    raise_descriptor_limit();
    let mut resolver = Resolver::start(how);
    let address = resolver.wait_for("listening");
    let before: usize = resolver.wait_for("resident").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let clients = runtime.block_on(ask_all(&address));
    let held: usize = resolver.wait_for("held").parse().unwrap();
    let each = held.saturating_sub(before) / MANY;
    println!("{MANY} {how}: {each} bytes each");
    runtime.block_on(all_are_answered(clients));
    let peak: usize = resolver.wait_for("peak").parse().unwrap();
    println!(
        "{MANY} {how}: all answered; at most {} MiB resident, the simulated cluster included",
        peak / MIB
    );
    assert!(each <= bounds.each, "{each} bytes for each {how} request");
    assert!(peak <= bounds.peak, "{peak} bytes resident");
}

async fn ask_all(address: &str) -> Vec<TcpStream> {
    let mut clients = Vec::with_capacity(MANY);
    for at in 0..MANY {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /{at} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        clients.push(client);
    }
    clients
}

async fn all_are_answered(clients: Vec<TcpStream>) {
    for (at, mut client) in clients.into_iter().enumerate() {
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{at}: {answer}");
        assert!(answer.contains(&format!("\"path\":\"/{at}\"")), "{at}");
    }
}

/// Many machines allow 1,024 at first and far more on request.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = 2 * MANY as u64;
    if current.is_some_and(|current| current < needed) {
        let most = maximum.map_or(needed, |maximum| maximum.min(needed));
        let raised = Rlimit {
            current: Some(most),
            maximum,
        };
        setrlimit(Resource::Nofile, raised).unwrap();
    }
}

/// As containerd 2 starts a process.
fn start_with_few_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(1024),
        maximum,
    };
    setrlimit(Resource::Nofile, few).unwrap();
}

/// The second process.
struct Resolver {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Resolver {
    fn start(how: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "ten_thousand::the_second_process",
                "--ignored",
                "--nocapture",
            ])
            .env(HELD, how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// The value that it prints next under this name.
    fn wait_for(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.lines.read_line(&mut line).unwrap(),
                0,
                "it ended before it printed {word}"
            );
            if let Some(rest) = line.trim().strip_prefix(&format!("@{word} ")) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A line of `/proc/self/status`, in bytes.
fn memory(line: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = text.lines().find_map(|one| one.strip_prefix(line)).unwrap();
    found
        .trim()
        .trim_end_matches(" kB")
        .parse::<usize>()
        .unwrap()
        * KIB
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the tests above start it as their second process"]
async fn the_second_process() {
    start_with_few_descriptors();
    elasti_runtime::file_limit::raise();
    let fixture = Fixture::start().await;
    // No wake succeeds before all are held.
    fixture.operator.code.store(503, Ordering::Relaxed);
    let mut cart = service("cart");
    if std::env::var(HELD).is_ok_and(|how| how == "judged") {
        cart.spec = json!({"probeResponse": [
            {"path": {"value": "/healthz"}, "response": {"status": 200}},
        ]});
    }
    fixture.asleep(cart).await;
    println!("\n@listening {}:{}", fixture.address, HTTP.listen);
    println!("@resident {}", memory("VmRSS:"));
    until("all are held", async || fixture.resolver().held() == MANY).await;
    println!("@held {}", memory("VmRSS:"));
    fixture.operator.code.store(200, Ordering::Relaxed);
    until("all are released", async || fixture.resolver().held() == 0).await;
    let unanswered = async || {
        let table = fixture.admin("/metrics").await.body;
        let counted = table.lines().find_map(|line| {
            let line = line.strip_prefix("elasti_resolver_incoming_requests_count{")?;
            line.contains("status=\"OK\"")
                .then(|| line.rsplit(' ').next())?
        });
        counted.and_then(|count| count.parse().ok()).unwrap_or(0) < MANY
    };
    until("all are answered", async || !unanswered().await).await;
    println!("@peak {}", memory("VmHWM:"));
    // The clients may still read; they end this process.
    std::future::pending::<()>().await;
}
