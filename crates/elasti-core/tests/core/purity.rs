//! The core depends on no async runtime, client, clock or source of randomness, and its sources name none.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that do I/O, run tasks, read a clock or draw numbers. A name covers its family: `rand` also `rand_core`.
const FORBIDDEN: [&str; 22] = [
    "tokio",
    "async-std",
    "smol",
    "mio",
    "futures",
    "hyper",
    "reqwest",
    "tower",
    "axum",
    "h2",
    "rustls",
    "kube-client",
    "kube-runtime",
    "socket2",
    "chrono",
    "time",
    "rand",
    "getrandom",
    "fastrand",
    "ahash",
    "uuid",
    "tracing",
];

/// What the list holds instead, and why that is no exception:
/// `kube` is only `kube-core` and the derive (its features `client` and `runtime` are off); `http` is the
/// request and response types without I/O, which `kube-core` uses; `jiff` is built without `tz-system` and so
/// reads no time zone, and its clock is excluded by the items below; `regex` and the maps of `std` need no
/// random source of their own.
#[test]
fn the_core_depends_on_no_runtime_client_clock_or_randomness() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "elasti-core",
            "--manifest-path",
            manifest,
        ])
        .args([
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--offline",
            "--locked",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(
        names.contains(&"elasti-api") && names.contains(&"jiff"),
        "{tree}"
    );
    for name in names {
        let found = FORBIDDEN.iter().find(|no| is_of(name, no));
        assert_eq!(found, None, "elasti-core depends on {name}");
    }
}

fn is_of(name: &str, family: &str) -> bool {
    let rest = name.strip_prefix(family);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

/// Items of the standard library and of jiff that read the outside world.
const FORBIDDEN_ITEMS: [&str; 14] = [
    "std::env",
    "std::fs",
    "std::io",
    "std::process",
    "std::thread",
    "std::net::Tcp",
    "std::net::Udp",
    "TcpStream",
    "Instant",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "RandomState",
    "HashMap",
];

/// Every source file below a folder, except tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_of_the_core_reads_the_outside_world() {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    assert!(files.len() >= 15, "only {} files were read", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in FORBIDDEN_ITEMS {
            assert!(!text.contains(word), "{} mentions {word}", path.display());
        }
    }
}
