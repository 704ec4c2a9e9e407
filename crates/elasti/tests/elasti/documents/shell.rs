//! A reader's shell: a folder with files, a PATH with our binary in it, and commands that run there.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::class::STRANGERS;
use super::commands::{split, stages};
use super::data;
use super::typed::lasts;

/// Far more than any command takes that works, on a real cluster too.
const LIMIT: Duration = Duration::from_secs(600);
const BINARY: &str = env!("CARGO_BIN_EXE_elasti");

pub(crate) struct Shell {
    folder: TempDir,
    /// Whose kubeconfig is used, below the folder.
    kubeconfig: &'static str,
}

impl Shell {
    /// Our binary is in the PATH by both its names, and so are these programs.
    pub(crate) fn new(programs: &[(&str, &Path)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for name in ["elasti", "kubectl-elasti"] {
            symlink(BINARY, bin.join(name)).unwrap();
        }
        for (name, path) in programs {
            symlink(path, bin.join(name)).unwrap();
        }
        Self {
            folder,
            kubeconfig: "kubeconfig",
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The same shell in front of another cluster, for this line.
    fn shell(&self, line: &str, kubeconfig: &str) -> Command {
        let mut command = Command::new("sh");
        let path = format!(
            "{}:/usr/local/bin:/usr/bin:/bin",
            self.path("bin").display()
        );
        command
            .args(["-c", line])
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", self.path(kubeconfig))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Types a line; gives what it printed if it ended with 0. What a stranger would be given is held against what it
    /// expects.
    pub(crate) async fn types(&self, line: &str) -> Result<String, String> {
        self.types_at(line, self.kubeconfig).await
    }

    pub(crate) async fn types_at(&self, line: &str, kubeconfig: &str) -> Result<String, String> {
        let (own, stranger) = before_strangers(line);
        let ended = timeout(LIMIT, self.shell(&own, kubeconfig).output()).await;
        let output = ended.map_err(|_| "it does not end".to_owned())?.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        match (stranger, output.status.code()) {
            // In a pipe only the last one's code counts.
            (Some(stranger), _) => {
                data::given(&stranger, &text).map_err(|what| format!("{what}\n{said}"))?
            }
            (None, Some(0)) => {}
            (None, code) => return Err(format!("it ended with {code:?}\n{text}{said}")),
        }
        Ok(text)
    }

    /// Types a line that goes on until Ctrl-C, and waits for its sign of life.
    pub(crate) async fn begins(&self, line: &str) -> Result<Lasting, String> {
        let sign = lasts(line).unwrap();
        let mut child = self
            .shell(&format!("exec {line}"), self.kubeconfig)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let found = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains(sign) {
                    return Some(line);
                }
            }
            None
        };
        match timeout(LIMIT, found).await {
            Ok(Some(first)) => Ok(Lasting {
                child,
                lines: lines.into_inner(),
                first,
            }),
            _ => {
                let mut said = String::new();
                let _ = child.start_kill();
                let errors = child.stderr.take().unwrap();
                let _ = errors.take(10_000).read_to_string(&mut said).await;
                Err(format!("it never says {sign:?}\n{said}"))
            }
        }
    }
}

/// A command that goes on.
pub(crate) struct Lasting {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// The line with its sign of life.
    pub(crate) first: String,
}

impl Lasting {
    /// Ctrl-C; ours must end with 0.
    pub(crate) async fn ends(mut self, is_ours: bool) -> Result<(), String> {
        let id = self.child.id().ok_or("it has ended by itself")?.to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().await;
        assert!(sent.unwrap().success());
        let mut rest = Vec::new();
        let ended = timeout(LIMIT, async {
            let _ = self.lines.read_to_end(&mut rest).await;
            self.child.wait().await
        });
        let status = ended
            .await
            .map_err(|_| "Ctrl-C does not end it".to_owned())?;
        match status.unwrap().code() {
            Some(0) => Ok(()),
            _ if !is_ours => Ok(()),
            code => Err(format!("after Ctrl-C it ended with {code:?}")),
        }
    }
}

/// The part of a pipe that is run, and the words of the stranger behind it.
fn before_strangers(line: &str) -> (String, Option<Vec<String>>) {
    let parts = stages(line);
    let stranger = parts.iter().position(|part| {
        let first = split(part).first().cloned().unwrap_or_default();
        STRANGERS.contains(&first.as_str())
    });
    match stranger {
        None => (line.to_owned(), None),
        Some(at) => (parts[..at].join("|"), Some(split(&parts[at]))),
    }
}
