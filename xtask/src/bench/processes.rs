//! The processes that a bench looks at: a backend, HAProxy, the resolver; each ends with the value that stands for it.

use std::error::Error;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::paths;

/// Where things listen: below the ephemeral range, so that no client has the port by chance.
pub(crate) const BACKEND: &str = "127.0.0.1:19000";
pub(crate) const HAPROXY_HTTP: &str = "127.0.0.1:19001";
pub(crate) const HAPROXY_TCP: &str = "127.0.0.1:19002";
pub(crate) const ELASTI_HTTP: &str = "127.0.0.1:19003";
pub(crate) const ELASTI_TCP_PORT: &str = "19004";
pub(crate) const ELASTI_TCP: &str = "127.0.0.1:19004";

/// Tool and Debian package.
const TOOLS: [(&str, &str); 3] = [
    ("haproxy", "haproxy"),
    ("nginx", "nginx-light"),
    ("wrk", "wrk"),
];

/// One process without a master, so that ending it ends all of it.
const NGINX: &str = "\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {
    listen 127.0.0.1:19000 backlog=4096;
    location / { default_type text/plain; return 200 \"hello from the backend\"; }
  }
}
";

/// All but the number of threads. It does to a head what the resolver does: three forwarding fields.
const HAPROXY: &str = "\
  maxconn 4000
defaults
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend http
  mode http
  bind 127.0.0.1:19001
  option forwardfor
  http-request set-header X-Forwarded-Proto http
  http-request set-header X-Forwarded-Host %[req.hdr(host)]
  default_backend http
backend http
  mode http
  server one 127.0.0.1:19000
frontend tcp
  mode tcp
  bind 127.0.0.1:19002
  default_backend tcp
backend tcp
  mode tcp
  server one 127.0.0.1:19000
";

/// Installs what is missing where it may; else says what is missing.
pub(crate) fn require_tools() -> Result<(), Box<dyn Error>> {
    let missing = || {
        let absent = |tool: &str| {
            let folders = ["/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin"];
            !folders
                .iter()
                .any(|folder| Path::new(folder).join(tool).exists())
        };
        let absent = TOOLS.iter().filter(|(tool, _)| absent(tool));
        absent.map(|(_, package)| *package).collect::<Vec<_>>()
    };
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    println!("installing {}", packages.join(", "));
    // Whether it may and can is seen by what is there afterwards.
    let _ = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&packages)
        .stdout(Stdio::null())
        .status();
    match missing().as_slice() {
        [] => Ok(()),
        still => Err(format!(
            "this bench needs the Debian packages {}: install them, or run it as root",
            still.join(", ")
        )
        .into()),
    }
}

/// A process that ends with this value.
#[derive(Debug)]
struct Owned(Child);

impl Owned {
    fn start(command: &mut Command, listens: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut child = Self(command.stdin(Stdio::null()).spawn()?);
        for address in listens {
            child.until_listening(address.parse()?)?;
        }
        Ok(child)
    }

    fn until_listening(&mut self, address: SocketAddr) -> Result<(), Box<dyn Error>> {
        for _ in 0..600 {
            if let Some(status) = self.0.try_wait()? {
                return Err(format!("a process for {address} ended early: {status}").into());
            }
            if TcpStream::connect(address).is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(50));
        }
        Err(format!("nothing listens on {address}").into())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server behind all proxies.
#[derive(Debug)]
pub(crate) struct Backend {
    _process: Owned,
}

impl Backend {
    pub(crate) fn start(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let configuration = folder.join("nginx.conf");
        fs::write(&configuration, NGINX)?;
        let mut command = Command::new("nginx");
        command
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(&configuration)
            .args(["-e", "stderr"]);
        Ok(Self {
            _process: Owned::start(&mut command, &[BACKEND])?,
        })
    }
}

/// A proxy under test.
#[derive(Debug)]
pub(crate) struct Proxy {
    process: Owned,
}

impl Proxy {
    pub(crate) fn haproxy(folder: &Path, threads: u32) -> Result<Self, Box<dyn Error>> {
        let configuration = folder.join("haproxy.cfg");
        let text = format!("global\n  nbthread {threads}\n{HAPROXY}");
        fs::write(&configuration, text)?;
        let mut command = Command::new("haproxy");
        command.args(["-db", "-q", "-f"]).arg(&configuration);
        Ok(Self {
            process: Owned::start(&mut command, &[HAPROXY_HTTP, HAPROXY_TCP])?,
        })
    }

    pub(crate) fn elasti(threads: u32) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(paths::target().join("image/examples/resolver_alone"));
        command.arg(threads.to_string());
        command.args([ELASTI_HTTP, ELASTI_TCP_PORT, BACKEND]);
        Ok(Self {
            process: Owned::start(&mut command, &[ELASTI_HTTP, ELASTI_TCP])?,
        })
    }

    /// What it has used of processors so far, in its own code and in the kernel for it.
    pub(crate) fn cpu_micros(&self) -> Result<u64, Box<dyn Error>> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process.0.id()))?;
        // The name, in parentheses, may hold spaces; `utime` and `stime` are the 12th and 13th fields after it.
        let (_, fields) = text.rsplit_once(')').ok_or("no process name")?;
        let mut fields = fields.split_whitespace().skip(11);
        let mut ticks = || -> Result<u64, Box<dyn Error>> {
            Ok(fields.next().ok_or("a short /proc/pid/stat")?.parse()?)
        };
        // Linux counts these in hundredths of a second, whatever the kernel's own tick.
        Ok((ticks()? + ticks()?) * 10_000)
    }
}
