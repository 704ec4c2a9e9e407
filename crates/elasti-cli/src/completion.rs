//! `elasti completion`: what a shell needs to complete commands and options.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::print;
use elasti_runtime::exit::{CODES, Failed};

const BASH_NAMES: &str = include_str!("completion/names.bash");
const FISH_NAMES: &str = include_str!("completion/names.fish");
const ZSH_NAMES: &str = include_str!("completion/names.zsh");
const KUBECTL: &str = include_str!("completion/kubectl.sh");

/// Prints or installs completion for a shell.
///
/// `--install` writes one file into the folder where the shell looks for completions of one user, and says which:
///   elasti completion bash --install
///   elasti completion zsh --install
///   elasti completion fish --install
/// Names of services and namespaces are completed too, in bash, zsh and fish. For `kubectl elasti`, put what --kubectl
/// prints into your PATH as kubectl_complete-elasti.
/// For PowerShell add this line to your profile:
///   elasti completion powershell | Out-String | Invoke-Expression
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, after_help = CODES)]
pub struct Completion {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL", required_unless_present = "kubectl")]
    shell: Option<Shell>,
    /// Print the script that kubectl runs to complete `kubectl elasti`
    #[arg(long, conflicts_with_all = ["shell", "install"])]
    kubectl: bool,
    /// Write it to where this shell looks, instead of printing it
    #[arg(long)]
    install: bool,
}

impl Completion {
    pub(crate) fn run(self, mut command: Command) -> Result<(), Failed> {
        let Some(shell) = self.shell else {
            return print(KUBECTL);
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "elasti", &mut script);
        let script = String::from_utf8(script).context("the script is no text")?;
        let script = with_names(shell, script);
        if !self.install {
            return print(&script);
        }
        let path = place(shell)?;
        write(&path, &script)?;
        print(&format!(
            "wrote {}\n{}\n",
            path.display(),
            next(shell, &path)
        ))
    }
}

/// The script, with the names that only a cluster knows.
fn with_names(shell: Shell, script: String) -> String {
    match shell {
        Shell::Bash => script + BASH_NAMES,
        Shell::Fish => script + FISH_NAMES,
        Shell::Zsh => zsh_names(&script),
        _ => script,
    }
}

/// In zsh each argument has the function that completes it.
fn zsh_names(script: &str) -> String {
    let mut text = String::new();
    for line in script.lines() {
        let is_name = line.contains("::names -- ") || line.contains(":name -- ");
        let is_namespace = line.contains(":NAMESPACE:_default");
        let line = match (is_name, is_namespace) {
            (true, _) => line.replace(":_default'", ":_elasti_services'"),
            (_, true) => line.replace(":NAMESPACE:_default", ":NAMESPACE:_elasti_namespaces"),
            _ => line.to_owned(),
        };
        text.push_str(&line);
        text.push('\n');
        // Behind the first line, which names the program for compinit.
        if line.starts_with("#compdef") {
            text.push_str(ZSH_NAMES);
        }
    }
    text
}

/// Where the shell looks for completions of one user.
fn place(shell: Shell) -> Result<PathBuf, Failed> {
    let folder = |variable: &str, below: &[&str]| {
        let set = std::env::var_os(variable).filter(|value| !value.is_empty());
        let home = || std::env::var_os("HOME").filter(|value| !value.is_empty());
        match set {
            Some(folder) => Ok(PathBuf::from(folder)),
            None => home()
                .map(|home| {
                    below
                        .iter()
                        .fold(PathBuf::from(home), |path, one| path.join(one))
                })
                .ok_or_else(|| {
                    Failed::Usage(
                        "HOME is not set; print the script and put it where your shell looks"
                            .to_owned(),
                    )
                }),
        }
    };
    match shell {
        Shell::Bash => {
            let data = folder("XDG_DATA_HOME", &[".local", "share"])?;
            Ok(data.join("bash-completion/completions/elasti"))
        }
        Shell::Fish => {
            let config = folder("XDG_CONFIG_HOME", &[".config"])?;
            Ok(config.join("fish/completions/elasti.fish"))
        }
        Shell::Zsh => Ok(folder("ZDOTDIR", &[])?.join(".zfunc/_elasti")),
        other => Err(Failed::Usage(format!(
            "{other} has no folder for completions; see: elasti completion --help"
        ))),
    }
}

/// What is left to do.
fn next(shell: Shell, path: &Path) -> String {
    match shell {
        Shell::Zsh => {
            let folder = path.parent().unwrap_or(path).display();
            format!(
                "once, if it is not there yet, add to ~/.zshrc: fpath+=({folder}); autoload -Uz compinit; compinit"
            )
        }
        _ => "it works in every new shell".to_owned(),
    }
}

fn write(path: &Path, script: &str) -> Result<(), Failed> {
    if let Some(folder) = path.parent() {
        let made = std::fs::create_dir_all(folder);
        made.with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let written = std::fs::write(path, script);
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}
