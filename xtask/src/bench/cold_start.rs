//! The first request to a sleeping service against a bare scale, Ready and request: `cargo xtask bench cold-start`.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::churn::request::{self, Outcome};
use crate::churn::timeline::{Edge, Timeline};
use crate::churn::world::{self, Size};
use crate::image;
use crate::kubernetes::ready;

/// Two that sleep in turn: while one falls asleep, the other is woken.
const TARGETS: usize = 2;
const BARE: &str = "bare";
const COOLDOWN_SECONDS: u32 = 3;
const LIMIT: Duration = Duration::from_secs(120);

/// How many, and how kube-proxy writes its rules.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    runs: usize,
    mode: String,
    /// The app of both sides.
    app: Size,
}

impl Options {
    /// Parses the flags; `None` where one is not known.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self {
            runs: 20,
            mode: "iptables".into(),
            app: Size {
                targets: TARGETS,
                ..Size::default()
            },
        };
        let mut pairs = arguments.chunks_exact(2);
        for pair in &mut pairs {
            match pair {
                ["--runs", n] => options.runs = n.parse().ok().filter(|runs| *runs > 0)?,
                ["--proxy-mode", mode] => options.mode = (*mode).to_owned(),
                ["--start-seconds", n] => options.app.start_seconds = Some(n.parse().ok()?),
                ["--probe-seconds", n] => options.app.probe_seconds = n.parse().ok()?,
                ["--probe-ahead", on] => options.app.probe_ahead = on.parse().ok()?,
                _ => return None,
            }
        }
        pairs.remainder().is_empty().then_some(options)
    }
}

/// One cold start, in seconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// From the first byte, or the scale write, until a bare watcher saw replicas above zero.
    pre: f64,
    /// From when a bare watcher saw a pod ready until the answer.
    post: f64,
    total: f64,
}

/// One figure of a cold start.
type Part = fn(&Times) -> f64;

/// Runs as many cold starts as bare ones, in turn, and prints medians and ratios.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    world::install(&options.mode, 1, 2)?;
    if options.app.needs_sample_app() {
        image::import(&image::sample_app()?)?;
    }
    world::create(options.app, COOLDOWN_SECONDS)?;
    world::create_bare(BARE, options.app)?;
    let timeline = Timeline::watch(world::NAMESPACE);
    let proxy = Proxy::start()?;
    let measured = measure(options.runs, &timeline, &proxy);
    drop(proxy);
    timeline.end();
    world::remove()?;
    let (elasti, bare) = measured?;
    print(&elasti, &bare);
    Ok(())
}

fn measure(
    runs: usize,
    timeline: &Timeline,
    proxy: &Proxy,
) -> Result<(Vec<Times>, Vec<Times>), Box<dyn Error>> {
    let (mut elasti, mut bare) = (Vec::new(), Vec::new());
    proxy.scale(BARE, 0)?;
    for run in 0..runs {
        let times = woken(&world::target(run % TARGETS), run, timeline)?;
        println!("{run:3} elasti {}", line(times));
        elasti.push(times);
        let times = scaled(run, timeline, proxy)?;
        println!("{run:3} bare   {}", line(times));
        bare.push(times);
    }
    Ok((elasti, bare))
}

/// The first request to a service that sleeps.
fn woken(target: &str, run: usize, timeline: &Timeline) -> Result<Times, Box<dyn Error>> {
    at_zero(target, run, timeline)?;
    let to = world::address(target)?;
    let start = Instant::now();
    let outcome = request::send(to, "cold");
    times(target, timeline, start, outcome)
}

/// A bare scale write, then a request to the pod itself as soon as a watcher sees it ready.
fn scaled(run: usize, timeline: &Timeline, proxy: &Proxy) -> Result<Times, Box<dyn Error>> {
    at_zero(BARE, run, timeline)?;
    let start = Instant::now();
    proxy.scale(BARE, 1)?;
    timeline
        .wait_for(BARE, Edge::PodReady, start, LIMIT)
        .ok_or("the bare pod does not become ready")?;
    let pod = timeline
        .ready_address(BARE)
        .ok_or("the pod has no address")?;
    let outcome = request::send(SocketAddr::new(pod, world::APP_PORT), "bare");
    let times = times(BARE, timeline, start, outcome)?;
    proxy.scale(BARE, 0)?;
    Ok(times)
}

fn times(
    target: &str,
    timeline: &Timeline,
    start: Instant,
    outcome: Outcome,
) -> Result<Times, Box<dyn Error>> {
    outcome.result.map_err(|lost| format!("{target}: {lost}"))?;
    let answered = outcome.sent_at + outcome.took;
    let seen = |edge| {
        let seen = timeline.wait_for(target, edge, start, LIMIT);
        seen.ok_or_else(|| format!("{target}: {edge:?} was not seen"))
    };
    let seconds = |from: Instant, to: Instant| match to.checked_duration_since(from) {
        Some(duration) => duration.as_secs_f64(),
        // The answer can be faster than the watcher.
        None => -from.duration_since(to).as_secs_f64(),
    };
    Ok(Times {
        pre: seconds(start, seen(Edge::Woken)?),
        post: seconds(seen(Edge::PodReady)?, answered),
        total: seconds(start, answered),
    })
}

/// Waits until nothing of a target is left.
pub(super) fn at_zero(target: &str, run: usize, timeline: &Timeline) -> Result<(), Box<dyn Error>> {
    let until = Instant::now() + LIMIT;
    while !timeline.is_at_zero(target) {
        if Instant::now() > until {
            return Err(format!("{target} does not fall asleep").into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    // Let the end of its pod be over, so that it costs the start nothing.
    thread::sleep(Duration::from_secs(1));
    // The kubelet looks at its containers once a second, and a pod's end comes at such a tick: without this every
    // start would have the same, and each kind another, place between two ticks.
    thread::sleep(Duration::from_secs(1).mul_f64((run as f64 * 0.618_034).fract()));
    Ok(())
}

fn line(times: Times) -> String {
    format!(
        "pre {:7.1} ms, post {:7.1} ms, total {:7.1} ms",
        times.pre * 1e3,
        times.post * 1e3,
        times.total * 1e3
    )
}

fn print(elasti: &[Times], bare: &[Times]) {
    let parts: [(&str, Part); 4] = [
        ("pre", |times| times.pre),
        // Scheduler, kubelet, containerd and app: the same for both, and most of the whole.
        ("between", |times| times.total - times.pre - times.post),
        ("post", |times| times.post),
        ("total", |times| times.total),
    ];
    println!("{} runs each; milliseconds", elasti.len());
    println!("         elasti p50   p90    max | bare p50   p90    max | ratio of medians");
    for (name, part) in parts {
        let sorted = |all: &[Times]| {
            let mut values: Vec<f64> = all.iter().map(|times| 1e3 * part(times)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (ours, floor) = (sorted(elasti), sorted(bare));
        let at = |values: &[f64], share: f64| {
            let last = values.len().saturating_sub(1);
            values
                .get((share * last as f64).round() as usize)
                .copied()
                .unwrap_or(f64::NAN)
        };
        println!(
            "{name:8} {:10.1} {:7.1} {:6.1} | {:8.1} {:6.1} {:6.1} | {:.2}",
            at(&ours, 0.5),
            at(&ours, 0.9),
            at(&ours, 1.0),
            at(&floor, 0.5),
            at(&floor, 0.9),
            at(&floor, 1.0),
            at(&ours, 0.5) / at(&floor, 0.5)
        );
    }
}

/// A way to the API server that costs no process for each write.
struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut child = ready::kubectl(&["proxy", "--port=0"])?
            .stdout(Stdio::piped())
            .spawn()?;
        let mut first = String::new();
        let output = child.stdout.take().ok_or("kubectl proxy says nothing")?;
        BufReader::new(output).read_line(&mut first)?;
        let address = first.trim().rsplit(' ').next().unwrap_or_default();
        let address = address.parse();
        Ok(Self {
            address: address.map_err(|_| format!("kubectl proxy said: {first}"))?,
            child,
        })
    }

    fn scale(&self, target: &str, replicas: u32) -> Result<(), Box<dyn Error>> {
        let path = format!(
            "/apis/apps/v1/namespaces/{}/deployments/{target}/scale",
            world::NAMESPACE
        );
        let body = format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#);
        let mut stream = TcpStream::connect(self.address)?;
        write!(
            stream,
            "PATCH {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/merge-patch+json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.split(' ').nth(1) {
            Some("200") => Ok(()),
            _ => Err(format!("scaling {target}: {answer}").into()),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
