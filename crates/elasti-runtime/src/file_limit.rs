//! How many files, and so connections, the process may have open. Container runtimes start processes with a soft limit of
//! 1,024 and a hard one that is far higher; the difference is there for the asking.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than this has no use: a million connections do not fit into the memory of one process.
const MOST: u64 = 1 << 20;

/// The limit that holds now.
#[must_use]
pub fn current() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(MOST)
}

/// How many files the process has open; `None` where the kernel does not tell.
#[must_use]
pub fn open() -> Option<u64> {
    let folder = "/proc/self/fd";
    // Since Linux 6.2 it is the size of the folder; counting a million entries takes a while.
    let size = std::fs::metadata(folder).ok()?.len();
    let count = || std::fs::read_dir(folder).ok().map(Iterator::count);
    match size {
        0 => count().and_then(|count| u64::try_from(count).ok()),
        known => Some(known),
    }
}

/// Raises the soft limit to the hard one, and says in the log what holds from then on.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (soft, hard) = (current.unwrap_or(MOST), maximum.unwrap_or(MOST).min(MOST));
    if soft >= hard {
        return;
    }
    let raised = Rlimit {
        current: Some(hard),
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::info!(from = soft, to = hard, "raised the limit of open files"),
        Err(error) => {
            tracing::warn!(limit = soft, %error, "cannot raise the limit of open files")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let hard = maximum.unwrap_or(MOST).min(MOST);
        let low = Rlimit {
            current: Some(hard.min(512)),
            maximum,
        };
        setrlimit(Resource::Nofile, low).unwrap();
        assert_eq!(current(), hard.min(512));
        raise();
        assert_eq!(current(), hard);
    }
}
