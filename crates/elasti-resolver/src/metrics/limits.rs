//! How near the process is to its limits: connections, open files, memory.

use std::io;
use std::sync::Arc;

use elasti_runtime::file_limit;
use elasti_runtime::metrics::{Family, Registry, Series};

use crate::memory::Pressure;

/// Gauges that are read from the process at each scrape, and what happened at a limit.
#[derive(Debug)]
pub(crate) struct LimitMetrics {
    connections: Arc<Series>,
    max_connections: Arc<Series>,
    open_files: Arc<Series>,
    max_files: Arc<Series>,
    memory_pressure: Arc<Series>,
    accept_errors: Arc<Family>,
}

impl LimitMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name, help| registry.gauge(name, help, &[]).with(&[]);
        Self {
            connections: gauge(
                "elasti_resolver_open_connections",
                "Connections of clients that are open.",
            ),
            max_connections: gauge(
                "elasti_resolver_max_connections",
                "Connections of clients that may be open.",
            ),
            open_files: gauge("process_open_fds", "Files that the process has open."),
            max_files: gauge("process_max_fds", "Files that the process may have open."),
            memory_pressure: gauge(
                "elasti_resolver_memory_pressure",
                "0 below 80 % of the memory limit; 1 from there on, where only what each service owns may wait; 2 from 90 % on, where nothing is accepted.",
            ),
            accept_errors: registry.counter(
                "elasti_resolver_accept_error_count",
                "Connections that could not be accepted, by why.",
                &["error"],
            ),
        }
    }

    pub(super) fn update(&self) {
        let value = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.max_files.set(value(file_limit::current()));
        if let Some(open) = file_limit::open() {
            self.open_files.set(value(open));
        }
    }

    /// How many are open, and how many may be.
    pub(crate) fn set_connections(&self, (open, most): (usize, usize)) {
        let value = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.connections.set(value(open));
        self.max_connections.set(value(most));
    }

    pub(crate) fn set_memory_pressure(&self, pressure: Pressure) {
        self.memory_pressure.set(match pressure {
            Pressure::Low => 0,
            Pressure::High => 1,
            Pressure::Critical => 2,
        });
    }

    pub(crate) fn accept_failed(&self, error: &io::Error) {
        self.accept_errors.with(&[accept_error(error)]).increment();
    }
}

/// One word of a closed list.
fn accept_error(error: &io::Error) -> &'static str {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    const ENOMEM: i32 = 12;
    match error.raw_os_error() {
        Some(ENFILE | EMFILE) => "files",
        Some(ENOBUFS | ENOMEM) => "memory",
        _ if error.kind() == io::ErrorKind::ConnectionAborted => "aborted",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_accept_is_one_of_four_words() {
        for (code, word) in [
            (24, "files"),
            (23, "files"),
            (12, "memory"),
            (105, "memory"),
            (103, "aborted"),
            (71, "other"),
        ] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(accept_error(&error), word, "{error}");
        }
    }

    #[test]
    fn open_files_are_counted_when_they_are_asked_for() {
        let registry = Registry::default();
        let limits = LimitMetrics::new(&registry);
        limits.update();
        let before = limits.open_files.get();
        let files: Vec<_> = (0..100)
            .map(|_| std::fs::File::open("/proc/self/stat").unwrap())
            .collect();
        limits.update();
        // Tests beside this one open and close some too.
        assert!(limits.open_files.get() > before + 50, "{before}");
        assert!(limits.max_files.get() >= limits.open_files.get());
        drop(files);
    }
}
