//! A user at a terminal, with the kubeconfig of the simulated or the real cluster.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use elasti_e2e::TestEnv;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// Far more than any command takes.
const LIMIT: Duration = Duration::from_secs(900);

pub struct User {
    pub env: TestEnv,
    files: TempDir,
}

impl User {
    pub async fn start() -> Self {
        let env = TestEnv::start().await;
        let user = Self {
            files: tempfile::tempdir().unwrap(),
            env,
        };
        user.writes("kubeconfig", &user.env.kubeconfig());
        user
    }

    /// A file to name in a command; gives its path.
    pub fn writes(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary, with the sandbox's kubeconfig and nothing else of this process.
    pub fn elasti(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elasti"));
        command
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", self.files.path().join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// What a user sees: output, errors behind `2>`, and the exit code.
    pub async fn types(&self, arguments: &[&str]) -> String {
        let ended = timeout(LIMIT, self.elasti(arguments).output()).await;
        let ended = ended.expect("it never ends").unwrap();
        let mut printed = String::from_utf8(ended.stdout).unwrap();
        for line in String::from_utf8(ended.stderr).unwrap().lines() {
            printed += &format!("2> {line}\n");
        }
        printed + &format!("[exit {}]\n", ended.status.code().unwrap_or(-1))
    }
}
