//! An API server of our own, with etcd, and controllers if they are asked for. There are no nodes.

use std::error::Error;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::kubernetes::configuration::AUDIT_POLICY;
use crate::kubernetes::{go_programs, ready};
use crate::paths;

const START_SECONDS: u32 = 60;

/// Running processes and how to reach them; both end with this value.
pub(crate) struct ControlPlane {
    folder: PathBuf,
    server: String,
    processes: Vec<Child>,
}

impl ControlPlane {
    /// With its data and logs in a folder of this name.
    pub(crate) fn start(apiserver: &Path, etcd: &Path, name: &str) -> Result<Self, Box<dyn Error>> {
        let folder = paths::target().join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let ports = free_ports()?;
        let [client, peer, secure] = ports;
        let mut plane = Self {
            server: format!("https://127.0.0.1:{secure}"),
            folder,
            processes: Vec::new(),
        };
        plane.spawn(etcd, &etcd_flags(&plane.folder, client, peer))?;
        let key = plane.folder.join("account.key");
        Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(&key)
            .arg("2048")
            .stderr(Stdio::null())
            .status()?;
        fs::write(
            plane.folder.join("tokens.csv"),
            "admin,admin,admin,system:masters\n",
        )?;
        fs::write(plane.folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
        // A binary of all components looks at its name to know which one to be.
        let named = plane.folder.join("kube-apiserver");
        std::os::unix::fs::symlink(apiserver.canonicalize()?, &named)?;
        plane.spawn(&named, &apiserver_flags(&plane.folder, client, secure))?;
        for _ in 0..START_SECONDS {
            if plane.kubectl(&["get", "--raw", "/readyz"], None).is_ok() {
                return Ok(plane);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        Err(format!(
            "the API server is not ready after {START_SECONDS} s; see {}",
            plane.folder.display()
        )
        .into())
    }

    /// What a Deployment, a Service and a namespace need besides nodes.
    pub(crate) fn start_controllers(&mut self, manager: &Path) -> Result<(), Box<dyn Error>> {
        let kubeconfig = self.write_kubeconfig()?;
        self.spawn(manager, &controller_flags(&kubeconfig))
    }

    /// The calls of ServiceAccounts, a line each.
    pub(crate) fn audit_log(&self) -> PathBuf {
        audit_log(&self.folder)
    }

    fn spawn(&mut self, program: &Path, flags: &[String]) -> Result<(), Box<dyn Error>> {
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let log = File::create(self.folder.join(format!("{name}.log")))?;
        let child = Command::new(program)
            .args(flags)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.processes.push(child);
        Ok(())
    }

    /// A kubeconfig for programs without flags for it.
    pub(crate) fn write_kubeconfig(&self) -> Result<PathBuf, Box<dyn Error>> {
        let path = self.folder.join("kubeconfig");
        let server = &self.server;
        fs::write(
            &path,
            format!(
                "apiVersion: v1\n\
                 kind: Config\n\
                 current-context: own\n\
                 contexts: [{{name: own, context: {{cluster: own, user: own}}}}]\n\
                 clusters: [{{name: own, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}]\n\
                 users: [{{name: own, user: {{token: admin}}}}]\n"
            ),
        )?;
        Ok(path)
    }

    /// Standard output of kubectl, or its standard error as an error.
    pub(crate) fn kubectl(
        &self,
        arguments: &[&str],
        input: Option<&Value>,
    ) -> Result<String, Box<dyn Error>> {
        let mut command = Command::new(go_programs::kube("kubectl")?);
        command
            .args([
                "--kubeconfig=/dev/null",
                "--insecure-skip-tls-verify",
                "--token=admin",
                "--namespace=default",
            ])
            .arg(format!("--server={}", self.server))
            .args(arguments);
        let input = input.map(Value::to_string).unwrap_or_default();
        let output = ready::output_for(&mut command, &input)?;
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout)?);
        }
        Err(String::from_utf8(output.stderr)?.into())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Ports that were free a moment ago.
fn free_ports() -> Result<[u16; 3], Box<dyn Error>> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}

fn etcd_flags(folder: &Path, client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (
        format!("http://127.0.0.1:{client}"),
        format!("http://127.0.0.1:{peer}"),
    );
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        "--unsafe-no-fsync".into(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]
}

fn apiserver_flags(folder: &Path, etcd: u16, secure: u16) -> Vec<String> {
    let key = folder.join("account.key");
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--secure-port={secure}"),
        "--bind-address=127.0.0.1".into(),
        format!("--cert-dir={}", folder.join("certificates").display()),
        format!("--token-auth-file={}", folder.join("tokens.csv").display()),
        "--authorization-mode=AlwaysAllow".into(),
        format!("--service-account-key-file={}", key.display()),
        format!("--service-account-signing-key-file={}", key.display()),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--endpoint-reconciler-type=none".into(),
        format!(
            "--audit-policy-file={}",
            folder.join("audit-policy.yaml").display()
        ),
        format!("--audit-log-path={}", audit_log(folder).display()),
        // It stays one file.
        "--audit-log-maxsize=10000".into(),
    ]
}

fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

fn controller_flags(kubeconfig: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--controllers=deployment-controller,replicaset-controller,endpointslice-controller,serviceaccount-controller"
            .into(),
        "--leader-elect=false".into(),
        // The test node's may listen on the usual port.
        "--secure-port=0".into(),
        // Thousands of services are created at once.
        "--kube-api-qps=500".into(),
        "--kube-api-burst=500".into(),
    ]
}
