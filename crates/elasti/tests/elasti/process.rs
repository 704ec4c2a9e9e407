//! The binary as a process in a simulated cluster: start, requests, signals.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use elasti_testkit::fixture::{
    Fixture, HTTP, PODS, Response as Answer, TestService, http_get as ask, service, until,
};

/// Far more than anything takes that works.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The binary, with nothing of this process's environment but what it needs.
pub fn elasti(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasti"));
    command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// A service whose pod is ready at once and listens nowhere: the test listens in its place.
pub fn hollow(name: &'static str) -> TestService {
    let mut hollow = service(name);
    hollow.image = "never-ready:1";
    hollow.probed = false;
    hollow
}

/// Where the pod of a hollow service would listen for port 80, once it was woken.
pub async fn pod_address(fixture: &Fixture) -> (IpAddr, u16) {
    let mut address = None;
    until("a pod has an address", async || {
        let pods = fixture.api_client.items(PODS).await;
        address = pods
            .first()
            .and_then(|pod| pod["status"]["podIP"].as_str()?.parse().ok());
        address.is_some()
    })
    .await;
    (address.unwrap(), 8000 + HTTP.port)
}

/// A resolver that runs as a process, in the place where the fixture's one would be.
pub struct ResolverProcess {
    pub child: Child,
    pub logs: Lines<BufReader<ChildStdout>>,
    pub errors: Lines<BufReader<ChildStderr>>,
    address: Ipv4Addr,
    _files: tempfile::TempDir,
}

impl ResolverProcess {
    pub async fn start(fixture: &Fixture, more: &[(&str, &str)]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let kubeconfig: PathBuf = files.path().join("kubeconfig");
        std::fs::write(&kubeconfig, fixture.fake_cluster.kubeconfig()).unwrap();
        let address = fixture.address.to_string();
        let mut child = elasti(&["resolver"])
            .env("KUBECONFIG", &kubeconfig)
            .env("ELASTI_RESOLVER_BIND_ADDRESS", &address)
            .env("POD_IP", &address)
            .env("ELASTI_RESOLVER_ALLOW_LOOPBACK", "true")
            .env(
                "ELASTI_RESOLVER_OPERATOR_ADDRESS",
                fixture.operator.address.to_string(),
            )
            .env("ELASTI_RESOLVER_SETTLE", "200ms")
            .envs(more.iter().copied())
            .spawn()
            .unwrap();
        let logs = BufReader::new(child.stdout.take().unwrap()).lines();
        let errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut process = Self {
            child,
            logs,
            errors,
            address: fixture.address,
            _files: files,
        };
        process.until_ready().await;
        process
    }

    async fn until_ready(&mut self) {
        let admin = format!("{}:8013", self.address);
        until("the process is ready", async || {
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
            let open = tokio::net::TcpStream::connect(&admin).await.is_ok();
            open && ask(&admin, "/readyz").await.code() == 200
        })
        .await;
    }

    pub async fn admin(&self, path: &str) -> Answer {
        ask(&format!("{}:8013", self.address), path).await
    }

    /// Requests that wait, as its metrics say.
    pub async fn held(&self) -> u64 {
        let metrics = self.admin("/metrics").await.body;
        let lines = metrics
            .lines()
            .filter(|line| line.starts_with("elasti_resolver_queued_count{"));
        let numbers = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        numbers.sum()
    }

    /// Sends it a signal by `kill`, since the standard library cannot.
    pub async fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .await
            .unwrap();
        assert!(sent.success());
    }

    pub async fn ended(&mut self) -> ExitStatus {
        timeout(LIMIT, self.child.wait())
            .await
            .expect("it never ends")
            .unwrap()
    }

    /// A line of `/proc/<id>/status`, in KiB.
    pub fn memory_kib(&self, line: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id().unwrap());
        let status = std::fs::read_to_string(path).unwrap();
        let found = status.lines().find_map(|one| one.strip_prefix(line));
        let number = found.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
        number.unwrap().parse().unwrap()
    }
}
