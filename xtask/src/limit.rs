//! A time limit for a check: what it has started is killed when the time is over, so that one that hangs fails alone.

use std::collections::HashMap;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::kubernetes::process::kill;

/// Between two rounds of killing: a check may start something new when its first child ends.
const KILL_INTERVAL: Duration = Duration::from_secs(1);

/// Gives what the work gives, or `None` if it took too long; then `end` is called until it is over.
pub(crate) fn within<T>(
    limit: Duration,
    end: impl Fn() + Send + 'static,
    work: impl FnOnce() -> T,
) -> Option<T> {
    let (over, is_over) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let late = |time| is_over.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if !late(limit) {
            return false;
        }
        end();
        while late(KILL_INTERVAL) {
            end();
        }
        true
    });
    let outcome = work();
    drop(over);
    match watch.join() {
        Ok(false) => Some(outcome),
        Ok(true) | Err(_) => None,
    }
}

/// Kills what a process has started, and what that has, but for one child that has a purpose of its own.
pub(crate) fn end_children(of: u32, spared: Option<u32>) {
    for id in descendants(of, spared) {
        kill("KILL", id);
    }
}

/// The children of a process, their children, and so on.
fn descendants(of: u32, spared: Option<u32>) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry.file_name().to_string_lossy().parse();
        let stat = fs::read_to_string(entry.path().join("stat"));
        let (Ok(id), Ok(stat)) = (id, stat) else {
            continue;
        };
        // `id (name) state parent …`: a name may hold anything, even a bracket.
        let parent = stat.rsplit(')').next().and_then(|rest| {
            let mut words = rest.split_whitespace();
            words.nth(1)?.parse().ok()
        });
        if let Some(parent) = parent.filter(|_| Some(id) != spared) {
            children.entry(parent).or_default().push(id);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![of]);
    while let Some(parent) = next.pop() {
        let own = children.remove(&parent).unwrap_or_default();
        found.extend(&own);
        next.extend(own);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_check_that_hangs_ends_with_all_that_it_started() {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let own = shell.id();
        let end = move || {
            end_children(own, None);
        };
        let ended = within(Duration::from_millis(200), end, || shell.wait().unwrap());
        assert_eq!(ended, None);
        assert_eq!(descendants(own, None), Vec::<u32>::new());
    }

    #[test]
    fn a_check_in_time_gives_its_outcome() {
        let never = || unreachable!("it was in time");
        assert_eq!(within(Duration::from_secs(60), never, || 7), Some(7));
    }

    #[test]
    fn a_child_with_a_purpose_of_its_own_is_spared() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let own = std::process::id();
        assert!(descendants(own, None).contains(&child.id()));
        assert!(!descendants(own, Some(child.id())).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
