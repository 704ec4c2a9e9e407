//! README's pictures, made from a run of the real demo: `cargo xtask recording`.

mod svg;

use std::error::Error;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::dashboard;
use crate::kubernetes::process::kill;
use crate::paths::{self, root};
use svg::Line;

pub(crate) const USAGE: &str = "  recording [terminal|dashboard]
                  make the pictures of README in docs/images: what `elasti demo` prints, as an animated SVG, and a
                  screenshot of its dashboard (needs what `dashboard` needs)
";

/// The whole recording takes about 20 s.
const LIMIT: Duration = Duration::from_secs(120);
/// Time to read what the user may do, before it is done.
const READING_TIME: Duration = Duration::from_secs(2);
/// The line that names the request which the user may send, and the last line of what that request causes.
const YOUR_TURN: &str = "Your turn:";
const LAST: &str = "web is Asleep";

/// Does what the words ask for; `None` where they ask for nothing known.
pub(crate) fn run(words: &[&str]) -> Option<Result<(), Box<dyn Error>>> {
    match words {
        [] => Some(terminal().and_then(|()| page())),
        ["terminal"] => Some(terminal()),
        ["dashboard"] => Some(page()),
        _ => None,
    }
}

fn images() -> PathBuf {
    root().join("docs/images")
}

fn terminal() -> Result<(), Box<dyn Error>> {
    dashboard::build().into_result()?;
    let lines = record()?;
    let path = images().join("demo.svg");
    fs::write(&path, svg::draw("$ elasti demo", &lines))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn page() -> Result<(), Box<dyn Error>> {
    dashboard::run_script("screenshot.mjs", &images())?;
    println!("wrote {}", images().join("dashboard.png").display());
    Ok(())
}

/// One round of the demo, then the request that it suggests, until the service sleeps again.
fn record() -> Result<Vec<Line>, Box<dyn Error>> {
    let started = Instant::now();
    let mut demo = Demo::start()?;
    let printed = demo.lines(started)?;
    let mut lines = Vec::new();
    loop {
        let line = printed
            .recv_timeout(LIMIT.saturating_sub(started.elapsed()))
            .map_err(|_| format!("the demo did not print {LAST:?}"))?;
        let your_turn = line.text.starts_with(YOUR_TURN);
        let last = line.text.contains(LAST);
        lines.push(line);
        if your_turn {
            thread::sleep(READING_TIME);
            request(address(&lines).ok_or("the demo printed no address")?)?;
        }
        if last {
            return Ok(lines);
        }
    }
}

/// Of `Request:    curl http://ADDRESS/  # Service web`.
fn address(lines: &[Line]) -> Option<&str> {
    let mut lines = lines.iter().map(|line| line.text.as_str());
    let (_, url) = lines.find_map(|line| line.split_once("curl http://"))?;
    url.split('/').next()
}

/// What `curl` would do.
fn request(address: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => Err(format!("the request to the demo was answered with {answer}").into()),
    }
}

/// A running demo. It ends as with Ctrl-C, so that nothing of it is left.
struct Demo(Child);

impl Demo {
    fn start() -> std::io::Result<Self> {
        let child = Command::new(paths::target().join("debug/elasti"))
            .arg("demo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }

    /// What it prints, with the time of each line.
    fn lines(&mut self, started: Instant) -> Result<Receiver<Line>, Box<dyn Error>> {
        let output = self.0.stdout.take().ok_or("the demo has no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                let at = started.elapsed();
                if sender.send(Line { at, text }).is_err() {
                    break;
                }
            }
        });
        Ok(lines)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        kill("TERM", self.0.id());
        let _ = self.0.wait();
    }
}
