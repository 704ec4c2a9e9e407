//! Probes as a pod's spec writes them, over real sockets.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::api_server::object::Object as _;

/// One probe of one container.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    address: Ipv4Addr,
    port: u16,
    path: Option<String>,
    delay: Duration,
    pub(crate) period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
    passed: u32,
    failed: u32,
}

impl Probe {
    /// Reads `/readinessProbe` and the like; `None` where the container has none.
    pub(crate) fn from_container(
        container: &Value,
        which: &str,
        address: Ipv4Addr,
    ) -> Option<Self> {
        let probe = container.get(which)?;
        let (handler, path) = match probe.get("httpGet") {
            Some(http) => (http, Some(http.text("/path").to_owned())),
            None => (probe.get("tcpSocket").or_else(|| probe.get("grpc"))?, None),
        };
        let seconds = |field: &str, otherwise: u64| {
            Duration::from_secs(
                probe
                    .number(field)
                    .and_then(|value| u64::try_from(value).ok())
                    .unwrap_or(otherwise),
            )
        };
        let times = |field: &str, otherwise: u32| {
            probe
                .number(field)
                .and_then(|value| u32::try_from(value).ok())
                .unwrap_or(otherwise)
        };
        Some(Self {
            address,
            port: port(container, handler.at("/port"))?,
            path,
            delay: seconds("/initialDelaySeconds", 0),
            period: seconds("/periodSeconds", 10).max(Duration::from_secs(1)),
            timeout: seconds("/timeoutSeconds", 1).max(Duration::from_millis(1)),
            successes: times("/successThreshold", 1).max(1),
            failures: times("/failureThreshold", 3).max(1),
            passed: 0,
            failed: 0,
        })
    }

    /// What its failure is reported as.
    pub(crate) fn failure(&self) -> String {
        let Self { address, port, .. } = self;
        match &self.path {
            Some(path) => {
                format!("Get \"http://{address}:{port}{path}\": no answer with 2xx or 3xx")
            }
            None => format!("dial tcp {address}:{port}: connect: connection refused"),
        }
    }

    pub(crate) async fn wait_initially(&self) {
        sleep(self.delay).await;
    }

    /// Asks once; says when the verdict is reached or changes.
    pub(crate) async fn check(&mut self) -> Option<bool> {
        let well = timeout(self.timeout, self.reach()).await.unwrap_or(false);
        (self.passed, self.failed) = if well {
            (self.passed + 1, 0)
        } else {
            (0, self.failed + 1)
        };
        match well {
            true if self.passed >= self.successes => Some(true),
            false if self.failed >= self.failures => Some(false),
            _ => None,
        }
    }

    async fn reach(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect((self.address, self.port)).await else {
            return false;
        };
        let Some(path) = &self.path else { return true };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: kube-probe/1.34\r\nConnection: close\r\n\r\n",
            self.address
        );
        if stream.write_all(request.as_bytes()).await.is_err() {
            return false;
        }
        let mut head = [0_u8; 12];
        let read = stream.read_exact(&mut head).await.is_ok();
        // `HTTP/1.1 2xx` or `3xx`
        read && head
            .get(9)
            .is_some_and(|digit| matches!(digit, b'2' | b'3'))
    }
}

fn port(container: &Value, port: &Value) -> Option<u16> {
    let number = match port.as_str() {
        None => port.as_i64(),
        Some(name) => container
            .list("/ports")
            .iter()
            .find(|one| one.text("/name") == name)
            .and_then(|one| one.number("/containerPort")),
    };
    number.and_then(|number| u16::try_from(number).ok())
}
