//! What a tenant's clients send to resolvers and operators.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use elasti_e2e::{App, TestEnv, blueprint, get, until};
use elasti_testkit::tls::{EXPIRED, FIRST};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::tenant::{AAA, Tenant, ask, connect, exchange, wake_request};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS with a window of 0 for every stream: nothing of a body may be sent to this client.
const NO_WINDOW: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0];
/// `:method GET`, `:scheme http`, `:path /`, `:authority x`.
const HEADERS: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 0x01, b'x'];
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Beginnings of a handshake that are none, or end too early: a record of zeros, one that is longer than any may be, an
/// alert, a hello that is cut off, and a certificate that no server asked for.
const GARBAGE: [&[u8]; 5] = [
    &[0x16, 3, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
    &[0x16, 3, 1, 0xff, 0xff, 1, 0, 0xff, 0xff],
    &[0x15, 3, 3, 0, 2, 2, 42],
    &[0x16, 3, 1, 0, 64, 1, 0, 0, 60, 3, 3],
    &[0x16, 3, 3, 0, 8, 11, 0, 0, 4, 0, 0, 0, 0],
];

/// The beginning of an HTTP/2 connection with this many requests, whose HEADERS frames have these flags.
fn http2(requests: u32, flags: u8) -> Vec<u8> {
    let mut bytes = [PREFACE, &NO_WINDOW].concat();
    for request in 0..requests {
        let stream = 2 * request + 1;
        bytes.extend([0, 0, 6, 1, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(HEADERS);
    }
    bytes
}

impl Tenant {
    pub(super) async fn regex_bombs(&mut self) {
        let bombs = [
            "(x+x+)+y",
            "(a|aa)+$",
            "(.{0,900}){0,900}",
            "((((a*)*)*)*)*b",
        ];
        let rules: Vec<Value> = (0..32)
            .map(|n| {
                let value = bombs[n % bombs.len()];
                let path = json!({"type": "RegularExpression", "value": value});
                json!({"path": path, "response": {"status": 200}})
            })
            .collect();
        let bomb = self
            .never_starts("bomb", json!({"probeResponse": rules}))
            .await;
        let path = format!("/{}", "x".repeat(8000));
        let address = bomb.address(80);
        self.tasks.spawn(async move {
            loop {
                let _ = timeout(Duration::from_secs(1), get(&address, &path)).await;
            }
        });
    }

    pub(super) async fn held_connections(&mut self) {
        let crowded = self.never_starts("crowded", json!({})).await;
        crowded.until_asleep().await;
        if !super::is_nightly() {
            return self.open(500, &crowded.address(80), REQUEST).await;
        }
        let [_, listen_port] = self.ways_to(&crowded).await;
        self.open_elsewhere(10_000, &listen_port).await;
        let metrics = get(&format!("{}:8013", self.resolver()), "/metrics").await;
        let metrics = metrics.unwrap().body;
        let held = metrics.lines().filter(|line| line.contains("crowded"));
        held.for_each(|line| println!("{line}"));
    }

    /// Opens so many connections with a request in a process of their own: this one may not have files for both ends.
    async fn open_elsewhere(&mut self, count: usize, address: &str) {
        let mut clients = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", CLIENTS_PROCESS])
            .env(CLIENTS, format!("{count} {address}"))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = BufReader::new(clients.stdout.take().unwrap());
        let mut lines = output.lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.ends_with(OPEN) {
                break;
            }
        }
        self.tasks.spawn(async move {
            // It ends where its output is not read.
            while let Ok(Some(_)) = lines.next_line().await {}
            drop(clients.wait().await);
        });
    }

    pub(super) async fn silent_connections(&mut self) {
        let silent = self.never_starts("silent", json!({})).await;
        silent.until_asleep().await;
        self.open(300, &silent.address(80), b"").await;
    }

    pub(super) async fn slow_heads(&mut self) {
        let address = format!("{}:8012", self.resolver());
        self.open(300, &address, b"G").await;
    }

    pub(super) async fn unread_streams(&mut self) {
        let unread = self.never_starts("unread", json!({})).await;
        unread.until_asleep().await;
        let requests = http2(100, END_STREAM | END_HEADERS);
        self.open(20, &unread.address(80), &requests).await;
    }

    pub(super) async fn unfinished_headers(&mut self) {
        let address = format!("{}:8012", self.resolver());
        self.open(100, &address, &http2(1, END_STREAM)).await;
    }

    pub(super) fn made_up_hosts(&mut self) {
        let address = format!("{}:8012", self.resolver());
        self.tasks.spawn(async move {
            for n in 0_u64.. {
                let request = format!(
                    "GET /{n} HTTP/1.1\r\nHost: made-up-{n}.default\r\nConnection: close\r\n\r\n"
                );
                let code = ask(&address, request.as_bytes()).await;
                assert!(code.is_none_or(|code| code >= 400), "{code:?}");
                sleep(Duration::from_millis(5)).await;
            }
        });
    }

    pub(super) async fn forged_text(&mut self) {
        let mut forged = blueprint("forged");
        forged.namespace = AAA;
        let forged = self.env.build(forged).await;
        forged.fall_asleep().await;
        let request = b"GET /\xc2\x9b31m\xe2\x80\xae HTTP/1.1\r\nHost: x\r\nUser-Agent: \x9b2J{\"level\":\"ERROR\"}\xe2\x80\xa8\\n\r\nConnection: close\r\n\r\n";
        ask(&forged.address(80), request).await;
        forged.busy();
        until("it was woken", async || {
            forged.status().await.last_wake.is_some()
        })
        .await;
        let told = forged.object().await["status"]["lastWake"].to_string();
        assert!(
            told.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{told}"
        );
    }

    pub(super) async fn admin_port_flood(&mut self) {
        let (resolver, operator) = (self.resolver(), self.env.operator_address(0));
        self.open(200, &format!("{resolver}:8013"), b"GET /").await;
        self.open(200, &format!("{operator}:8013"), b"POST /").await;
    }

    /// At the ports where operators and resolvers prove to each other who they are.
    pub(super) fn false_certificates(&mut self) {
        let operator = format!("{}:8013", self.env.operator_address(0));
        for address in [operator.clone(), format!("{}:8013", self.resolver())] {
            self.tasks.spawn(async move {
                for bytes in GARBAGE.iter().cycle() {
                    let code = timeout(Duration::from_millis(200), ask(&address, bytes)).await;
                    assert_ne!(code.ok().flatten(), Some(200), "{bytes:?}");
                    sleep(Duration::from_millis(10)).await;
                }
            });
        }
        self.tasks.spawn(async move {
            let connector = with_expired_certificate();
            loop {
                let request = wake_request("Authorization: Bearer made.up.token\r\n");
                let asked = async {
                    let name = ServerName::try_from("elasti-operator").ok()?;
                    let stream = connect(&operator).await?;
                    let stream = connector.connect(name, stream).await.ok()?;
                    exchange(stream, request.as_bytes()).await
                };
                let code = timeout(Duration::from_secs(5), asked).await.ok().flatten();
                assert!(code.is_none_or(|code| code >= 400), "{code:?}");
                sleep(Duration::from_millis(20)).await;
            }
        });
    }

    /// A second service of the neighbour's, which admits no client from elsewhere.
    pub(super) async fn through_resolvers(&mut self) {
        let allowed = json!({"allowFrom": {"cidrs": ["127.0.0.0/16"]}});
        let locked = locked(&self.env, json!({"hold": allowed})).await;
        let addresses = self.ways_to(&locked).await;
        self.tasks.spawn(async move {
            for address in addresses.iter().cycle() {
                let code = reach(address).await;
                assert!(code.is_none_or(|code| code == 403), "{address}: {code:?}");
                assert_eq!(locked.replicas().await, 0, "it was woken");
                sleep(Duration::from_millis(50)).await;
            }
        });
    }

    /// The host route, and the listen port.
    pub(crate) async fn ways_to(&self, app: &App) -> [String; 2] {
        let ports = app.status().await.ports;
        let listen_port = ports.first().map_or(0, |port| port.listen_port);
        let resolver = self.resolver();
        [
            format!("{resolver}:8012"),
            format!("{resolver}:{listen_port}"),
        ]
    }
}

/// TLS with a certificate that no server asked for, has expired, and is of an authority of its own.
fn with_expired_certificate() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = FIRST.authority.as_bytes();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authority).flatten());
    let own = CertificateDer::pem_slice_iter(EXPIRED.certificate.as_bytes()).flatten();
    let key = PrivateKeyDer::from_pem_slice(EXPIRED.key.as_bytes()).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(own.collect(), key);
    TlsConnector::from(Arc::new(config.unwrap()))
}

/// Another service of the neighbour's, asleep.
pub(crate) async fn locked(env: &TestEnv, spec: Value) -> App {
    env.namespace("bbb").await;
    let mut locked = blueprint("locked");
    locked.namespace = "bbb";
    locked.spec = spec;
    let locked = env.build(locked).await;
    locked.fall_asleep().await;
    locked
}

/// A request for it.
pub(crate) async fn reach(address: &str) -> Option<u16> {
    let request = b"GET / HTTP/1.1\r\nHost: locked.bbb\r\nConnection: close\r\n\r\n";
    ask(address, request).await
}

const CLIENTS: &str = "ELASTI_HOSTILE_CLIENTS";
const CLIENTS_PROCESS: &str = "hostile::clients::the_process_of_ten_thousand_clients";
const OPEN: &str = "all are open";

#[tokio::test]
#[ignore = "the nightly run starts it as a second process"]
async fn the_process_of_ten_thousand_clients() {
    let asked = std::env::var(CLIENTS).unwrap();
    let (count, address) = asked.split_once(' ').unwrap();
    let mut connections = Vec::new();
    for _ in 0..count.parse().unwrap() {
        // What is not accepted any more is as good.
        if let Some(mut stream) = connect(address).await {
            let _ = stream.write_all(REQUEST).await;
            connections.push(stream);
        }
    }
    println!("\n{OPEN}");
    std::future::pending::<()>().await;
}
