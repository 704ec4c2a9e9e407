//! A process that outlives us: started with a log and a file that names it, stopped by that file.
//! It never signals a process that it did not start, even when a process id is used again.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::layout;
use super::nodes::Node;

const POLITE: Duration = Duration::from_secs(10);

/// What to start.
pub(crate) struct Process {
    pub(crate) name: String,
    /// Where it runs.
    pub(crate) node: Node,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// A process id, and when that process started: together they are never used twice.
struct Identity {
    id: u32,
    started: String,
}

impl Process {
    /// Starts the process in a group of its own, so that our end and our Ctrl-C are not its end.
    pub(crate) fn start(&self) -> Result<(), Box<dyn Error>> {
        if is_alive(&self.name) {
            return Ok(());
        }
        fs::create_dir_all(layout::logs())?;
        fs::create_dir_all(layout::run())?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log_of(&self.name))?;
        let child = self
            .node
            .command(&self.program)
            .args(&self.arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let id = child.id();
        let (_, _, started) = stat(id).ok_or_else(|| format!("{} ended at once", self.name))?;
        fs::write(file_of(&self.name), format!("{id} {started}\n"))?;
        Ok(())
    }
}

/// Whether the process of this name lives.
pub(crate) fn is_alive(name: &str) -> bool {
    identity(name).is_some_and(|identity| lives(&identity))
}

/// The process id, for people.
pub(crate) fn id(name: &str) -> Option<u32> {
    identity(name).map(|identity| identity.id)
}

/// Asks the process to end, then makes it.
pub(crate) fn stop(name: &str) -> Result<(), Box<dyn Error>> {
    if let Some(identity) = identity(name) {
        for signal in ["TERM", "KILL"] {
            if !lives(&identity) {
                break;
            }
            kill(signal, identity.id);
            wait_until(POLITE, || !lives(&identity));
        }
        if lives(&identity) {
            return Err(format!("{name} (process {}) does not end", identity.id).into());
        }
        fs::remove_file(file_of(name))?;
    }
    Ok(())
}

/// Sends a signal; a process that is gone already needs none.
pub(crate) fn kill(signal: &str, id: u32) {
    let _ = Command::new("kill")
        .args(["-s", signal, &id.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Waits until the condition holds; says whether it does.
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Every process id of the machine.
pub(crate) fn all_ids() -> Result<Vec<u32>, Box<dyn Error>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Ok(id) = entry?.file_name().to_string_lossy().parse() {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The parent of a process.
pub(crate) fn parent(id: u32) -> Option<u32> {
    stat(id).map(|(_, parent, _)| parent)
}

/// The log of a process.
pub(crate) fn log_of(name: &str) -> PathBuf {
    layout::logs().join(format!("{name}.log"))
}

fn file_of(name: &str) -> PathBuf {
    layout::run().join(format!("{name}.pid"))
}

fn identity(name: &str) -> Option<Identity> {
    let text = fs::read_to_string(file_of(name)).ok()?;
    let (id, started) = text.trim().split_once(' ')?;
    Some(Identity {
        id: id.parse().ok()?,
        started: started.to_owned(),
    })
}

fn lives(identity: &Identity) -> bool {
    stat(identity.id).is_some_and(|(state, _, started)| state != "Z" && started == identity.started)
}

/// State, parent and start of a process.
fn stat(id: u32) -> Option<(String, u32, String)> {
    let path = Path::new("/proc").join(id.to_string()).join("stat");
    parse_stat(&fs::read_to_string(path).ok()?)
}

/// The name in brackets may hold anything, so fields are counted from the last bracket.
fn parse_stat(line: &str) -> Option<(String, u32, String)> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let state = fields.first()?.to_string();
    let parent = fields.get(1)?.parse().ok()?;
    Some((state, parent, fields.get(19)?.to_string()))
}

#[cfg(test)]
mod tests {
    use super::parse_stat;

    #[test]
    fn a_process_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let line = "42 (a) 7 (b) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        let wanted = ("S".to_owned(), 1, "987654".to_owned());
        assert_eq!(parse_stat(line), Some(wanted));
    }

    #[test]
    fn a_line_that_is_cut_short_is_no_process() {
        assert_eq!(parse_stat("42 (etcd) S 1 42"), None);
    }
}
