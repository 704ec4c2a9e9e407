//! What a terminal shows: colour, width, and the live screen. `script` of util-linux gives the process a terminal.

use std::process::Stdio;
use std::time::Duration;

use elasti_e2e::until;
use elasti_fake_cluster::faults::{Calls, Fault, Verb};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::fixture::{Fixture, days_ago};

const LIMIT: Duration = Duration::from_secs(120);

fn status(phase: &str, reason: &str, holds: bool) -> Value {
    let word = if holds { "True" } else { "False" };
    json!({
        "phase": phase, "mode": "proxy", "reason": reason, "replicas": i32::from(phase != "Asleep"), "observedGeneration": 1,
        "lastSleepTime": days_ago(2), "lastScaledUpTime": days_ago(1),
        "conditions": [{"type": "Ready", "status": word, "reason": reason, "message": "s", "lastTransitionTime": days_ago(1)}],
    })
}

async fn two() -> Fixture {
    let fixture = Fixture::unattended().await;
    for (name, status) in [
        ("api", status("Asleep", "Idle", true)),
        ("web", status("Waking", "CrashLoop", false)),
    ] {
        fixture.workload(name, 0, json!({})).await;
        fixture.declare(name, json!({})).await;
        fixture.status(name, status).await;
    }
    fixture
}

/// The binary on a terminal of 80 columns.
fn on_a_terminal(fixture: &Fixture, arguments: &str, more: &[(&str, &str)]) -> Child {
    let line = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_elasti"));
    Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TERM", "xterm")
        .env("COLUMNS", "80")
        .env("KUBECONFIG", fixture.kubeconfig())
        .envs(more.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("script of util-linux is needed")
}

async fn shown(fixture: &Fixture, arguments: &str, more: &[(&str, &str)]) -> String {
    let mut child = on_a_terminal(fixture, arguments, more);
    let mut text = String::new();
    let mut screen = child.stdout.take().unwrap();
    let read = timeout(LIMIT, screen.read_to_string(&mut text)).await;
    read.expect("it never ends").unwrap();
    text
}

/// The colours that a text uses.
fn colours(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = text
        .split('\x1b')
        .skip(1)
        .filter_map(|part| part.split_once('m').map(|(code, _)| code))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn colour_is_bold_blue_and_yellow_and_no_color_leaves_the_same_words() {
    let fixture = two().await;
    let painted = shown(&fixture, "list -A", &[]).await;
    assert_eq!(
        colours(&painted),
        ["[0", "[1", "[1;33", "[34"],
        "{painted:?}"
    );
    for more in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = shown(&fixture, "list -A", &[more]).await;
        assert!(!plain.contains('\x1b'), "{plain:?}");
        let mut bare = painted.clone();
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[1;33m", "\x1b[34m"] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, plain, "colour says nothing that words do not");
    }
    assert!(
        painted.contains("!CrashLoop"),
        "trouble has a sign: {painted:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_screen_follows_every_change_and_is_left_as_it_was() {
    let fixture = two().await;
    let mut child = on_a_terminal(&fixture, "top", &[]);
    let mut screen = child.stdout.take().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let text = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let seen = text.clone();
    let reading = tokio::spawn(async move {
        let mut some = [0_u8; 4096];
        while let Ok(read @ 1..) = screen.read(&mut some).await {
            let more = String::from_utf8_lossy(&some[..read]).into_owned();
            seen.lock().unwrap().push_str(&more);
        }
    });
    let shows = |word: &str| text.lock().unwrap().contains(word);
    until("it shows both", async || {
        shows("!CrashLoop") && shows("Asleep")
    })
    .await;
    assert!(shows("\x1b[?1049h"), "on a screen of its own");
    fixture
        .status("web", status("Restoring", "WakeRequested", true))
        .await;
    until("it shows the change", async || shows("WakeRequested")).await;
    keys.write_all(b"\x03").await.unwrap();
    timeout(LIMIT, reading)
        .await
        .expect("Ctrl-C ends it")
        .unwrap();
    let whole = text.lock().unwrap().clone();
    assert!(
        whole.trim_end().ends_with("\x1b[?25h\x1b[?1049l"),
        "{whole:?}"
    );
    let ended = timeout(LIMIT, child.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_filter_wake_explain_and_quit() {
    let fixture = two().await;
    let mut child = on_a_terminal(&fixture, "top", &[]);
    let mut screen = child.stdout.take().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let text = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let seen = text.clone();
    let reading = tokio::spawn(async move {
        let mut some = [0_u8; 4096];
        while let Ok(read @ 1..) = screen.read(&mut some).await {
            let more = String::from_utf8_lossy(&some[..read]).into_owned();
            seen.lock().unwrap().push_str(&more);
        }
    });
    let shows = |word: &str| text.lock().unwrap().contains(word);
    until("it shows both", async || shows("q quit") && shows("Asleep")).await;
    keys.write_all(b"/web\r").await.unwrap();
    until("it filters", async || shows("filter \"web\"")).await;
    keys.write_all(b"w").await.unwrap();
    until("it tells", async || shows("web: wake requested")).await;
    let annotation = &fixture.object("web").await["metadata"]["annotations"]["elasti.truefoundry.com/wake-requested"];
    assert!(annotation.is_string(), "{annotation}");
    keys.write_all(b"\r").await.unwrap();
    until("it explains", async || shows("esc back")).await;
    keys.write_all(b"q").await.unwrap();
    timeout(LIMIT, reading).await.expect("q ends it").unwrap();
    let ended = timeout(LIMIT, child.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_do_not_wait_for_what_why_reads() {
    let fixture = two().await;
    let faults = fixture.env.fake_cluster().server.faults();
    for nth in 1..=40 {
        let events = Calls::all().verb(Verb::List).kind("events");
        faults.strike(nth, events, Fault::Delay(LIMIT * 10));
    }
    let mut child = on_a_terminal(&fixture, "top", &[]);
    let mut screen = child.stdout.take().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut text = String::new();
    let mut until_shown = async |word: &str| {
        let mut some = [0_u8; 4096];
        while !text.contains(word) {
            let read = timeout(LIMIT / 10, screen.read(&mut some)).await;
            let read = read.unwrap_or_else(|_| panic!("no {word:?}: {text:?}"));
            text.push_str(&String::from_utf8_lossy(&some[..read.unwrap()]));
        }
        text.clear();
    };
    until_shown("q quit").await;
    keys.write_all(b"\r").await.unwrap();
    until_shown("Reading about").await;
    keys.write_all(b"\x1b").await.unwrap();
    until_shown("s sort").await;
    keys.write_all(b"q").await.unwrap();
    let ended = timeout(LIMIT / 10, child.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(0));
}
