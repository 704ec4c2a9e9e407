//! Makes the load with wrk and reads what it says.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Connections that ask one request after the other.
pub(crate) const CONNECTIONS: u32 = 32;

/// wrk's own figures in one line; its summary rounds them.
const SCRIPT: &str = r#"
done = function(summary, latency, requests)
  local wrong = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout
  io.write(string.format("figures %d %d %d %d %d\n", summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), wrong))
end
"#;

/// What one run of wrk measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) micros: u64,
    pub(crate) p50_micros: u64,
    pub(crate) p99_micros: u64,
}

/// Loads an address for a while; what wrk printed stays in `raw`.
pub(crate) fn run(
    address: &str,
    threads: u32,
    seconds: u32,
    raw: &Path,
) -> Result<Load, Box<dyn Error>> {
    let script = raw.with_file_name("figures.lua");
    fs::write(&script, SCRIPT)?;
    let ran = Command::new("wrk")
        .args([format!("-t{threads}"), format!("-c{CONNECTIONS}")])
        .arg(format!("-d{seconds}s"))
        .arg("-s")
        .arg(&script)
        .arg(format!("http://{address}/"))
        .output()?;
    fs::write(raw, [ran.stdout.as_slice(), &ran.stderr].concat())?;
    parse(&String::from_utf8_lossy(&ran.stdout))
        .map_err(|error| format!("{address}: {error}; see {}", raw.display()).into())
}

fn parse(text: &str) -> Result<Load, Box<dyn Error>> {
    let line = text.lines().find_map(|line| line.strip_prefix("figures "));
    let numbers: Result<Vec<u64>, _> = line
        .ok_or("wrk printed no figures")?
        .split(' ')
        .map(str::parse)
        .collect();
    match numbers?.as_slice() {
        [requests, micros, p50_micros, p99_micros, 0] if *requests > 0 && *micros > 0 => Ok(Load {
            requests: *requests,
            micros: *micros,
            p50_micros: *p50_micros,
            p99_micros: *p99_micros,
        }),
        [requests, .., wrong] => Err(format!("{wrong} of {requests} requests went wrong").into()),
        _ => Err("wrk printed odd figures".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_a_wrong_answer_is_an_error() {
        let load = parse("Running\nfigures 1000 2000000 90 410 0\n").unwrap();
        assert_eq!((load.requests, load.p99_micros), (1000, 410));
        assert!(parse("figures 1000 2000000 90 410 1\n").is_err());
        assert!(parse("figures 0 2000000 0 0 0\n").is_err());
        assert!(parse("Running\n").is_err());
    }
}
