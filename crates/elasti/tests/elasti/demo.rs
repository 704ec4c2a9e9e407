//! `elasti demo` as a process: its lines and its exit code.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The story, word by word.
const WORDS: [&str; 12] = [
    "asleep", "request", "held", "scaled", "ready", "answered", "serving", "direct", "idle",
    "drained", "asleep", "requests",
];

/// The demo, with nothing of this process's environment.
fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasti"));
    command
        .arg("demo")
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null());
    command
}

fn printed(arguments: &[&str]) -> (Output, String, String) {
    let output = demo(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

/// The timed lines: word and sentence.
fn story(out: &str) -> Vec<(&str, &str)> {
    out.lines()
        .filter_map(|line| {
            let (seconds, rest) = line.trim_start().split_once(" s  ")?;
            seconds.parse::<f64>().ok()?;
            let (word, sentence) = rest.split_once(' ')?;
            Some((word, sentence.trim_start()))
        })
        .collect()
}

fn sentence<'a>(story: &[(&str, &'a str)], word: &str) -> &'a str {
    let found = story.iter().find(|(one, _)| *one == word);
    found.unwrap_or_else(|| panic!("no {word} in {story:#?}")).1
}

/// The number after a word of the ledger's line.
fn count(ledger: &str, word: &str) -> u64 {
    let after = ledger.split(word).nth(1).unwrap().trim_start();
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// A line without what differs from run to run: numbers, addresses, names of pods, paths.
fn normalised(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        let word = match (words.last().copied(), word) {
            (Some("pod"), _) => "POD",
            (_, word) if word.starts_with('/') => "PATH",
            (_, word) if word.starts_with("http://") => "URL",
            (_, word) if word.starts_with(|c: char| c.is_ascii_digit()) => "N",
            (_, word) => word,
        };
        words.push(word);
    }
    // "2 to 3 ms" may as well be "2 ms".
    words.join(" ").replace("N to N", "N")
}

#[test]
fn the_steps_come_in_order_and_no_request_is_lost() {
    let (output, out, err) = printed(&["--once"]);
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    let story = story(&out);
    let words: Vec<&str> = story.iter().map(|(word, _)| *word).collect();
    assert_eq!(words, WORDS, "{out}");
    assert!(
        sentence(&story, "scaled").contains("web from 0 to 1"),
        "{out}"
    );
    assert!(
        sentence(&story, "answered").starts_with("200 from pod web-"),
        "{out}"
    );
    let ledger = sentence(&story, "requests");
    assert_eq!(count(ledger, "sent"), count(ledger, "answered"), "{out}");
    assert!(count(ledger, "held") >= 1, "{out}");
    assert_eq!(count(ledger, "lost"), 0, "{out}");
    assert!(
        !out.contains('\x1b') && !err.contains('\x1b'),
        "colour without a terminal: {out:?} {err:?}"
    );
    let shortened = out
        .lines()
        .find(|line| line.starts_with("Times are shortened"));
    assert!(shortened.is_some(), "{out}");
}

/// The lines of README's recording.
fn recorded() -> Vec<String> {
    let svg = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/demo.svg");
    let svg = std::fs::read_to_string(svg).unwrap();
    let rows = svg.lines().filter(|row| row.starts_with("<text "));
    let texts = rows.map(|row| {
        let parts = row.split('<').filter_map(|part| part.split_once('>'));
        parts.map(|(_, text)| text).collect::<String>()
    });
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    let plain = |text: String| {
        let replaced = escapes.iter();
        replaced.fold(text, |text, (from, to)| text.replace(from, to))
    };
    texts.map(plain).collect()
}

#[test]
fn the_recording_in_the_readme_shows_what_the_demo_prints() {
    let recorded = recorded();
    let shown = recorded.iter().skip_while(|line| line.starts_with('$'));
    let shown: Vec<String> = shown
        .take_while(|line| !line.starts_with("Your turn"))
        .map(|line| normalised(line))
        .collect();
    let (output, out, err) = printed(&["--once"]);
    assert!(output.status.success(), "{out}\n{err}");
    let lines = out.lines().filter(|line| !line.is_empty());
    let printed: Vec<String> = lines.map(normalised).collect();
    assert_eq!(shown, printed, "run `cargo xtask recording`:\n{out}");
}

#[test]
fn several_services_under_load_lose_nothing() {
    let (output, out, err) =
        printed(&["--once", "--services", "3", "--load", "--cold-start", "1s"]);
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    let story = story(&out);
    assert!(
        sentence(&story, "scaled").contains("3 services from 0 to 1"),
        "{out}"
    );
    let ledger = sentence(&story, "requests");
    assert!(count(ledger, "held") > 3, "the load was held too: {out}");
    assert!(count(ledger, "sent") > count(ledger, "held"), "{out}");
    assert_eq!(count(ledger, "sent"), count(ledger, "answered"), "{out}");
    assert_eq!(count(ledger, "lost"), 0, "{out}");
}

#[test]
fn a_step_that_times_out_is_named_and_ends_it_with_code_1() {
    let (output, out, err) = printed(&["--once", "--cold-start", "10m", "--patience", "15s"]);
    assert_eq!(output.status.code(), Some(1), "{out}\n{err}");
    let printed = story(&out);
    let words: Vec<&str> = printed.iter().map(|(word, _)| *word).collect();
    assert_eq!(words, &WORDS[..4], "{out}");
    assert!(
        err.contains("step \"ready\" timed out after 15000 ms; web is Waking"),
        "{err}"
    );
}

#[test]
fn options_that_cannot_be_used_give_one_sentence_and_code_2() {
    for (arguments, sentence) in [
        (
            ["--cold-start", "soon"],
            "write a time such as 500ms, 2s or 1m",
        ),
        (["--cold-start", "1ms"], "write at least 200ms"),
        (["--patience", "0s"], "write a time such as"),
        (["--services", "0"], "0 is not in 1..=50"),
    ] {
        let (output, out, err) = printed(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.contains(sentence), "{arguments:?}: {err}");
        assert!(out.is_empty(), "{out}");
    }
}

/// A demo that is ended if the test fails first.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the kubeconfig's server answers.
fn ask(kubeconfig: &str, path: &str) -> String {
    send(kubeconfig, "GET", path, "")
}

/// What it answers to a change; a body is a merge patch.
fn send(kubeconfig: &str, method: &str, path: &str, body: &str) -> String {
    let server = kubeconfig.split("server: http://").nth(1).unwrap();
    let (address, prefix) = server.lines().next().unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} /{prefix}{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/merge-patch+json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn its_kubeconfig_works_while_it_runs_and_ctrl_c_leaves_nothing_behind() {
    let mut running = Running(
        demo(&[])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(running.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let watch = lines.find(|line| line.starts_with("Watch:")).unwrap();
    let path = watch
        .split_whitespace()
        .find(|word| word.starts_with('/'))
        .unwrap();
    lines.find(|line| line.contains(" asleep ")).unwrap();
    let kubeconfig = std::fs::read_to_string(path).unwrap();
    let answer = ask(
        &kubeconfig,
        "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices",
    );
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"phase\":\"Asleep\""),
        "{answer}"
    );
    let id = running.0.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    let status = running.0.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(
        !Path::new(path).parent().unwrap().exists(),
        "{path} is left behind"
    );
    assert!(lines.any(|line| line.starts_with("Stopped")));
}

#[test]
fn an_interrupted_single_run_has_failed() {
    let mut running = Running(
        demo(&["--once"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(running.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    lines.find(|line| line.contains(" asleep ")).unwrap();
    let id = running.0.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(running.0.wait().unwrap().code(), Some(1));
}

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const SERVICE: &str = "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices/web";

/// The first ElastiService of README.md, as JSON.
fn readme_manifest() -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let (_, block) = readme.split_once("```yaml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let manifest: serde_json::Value = serde_saphyr::from_str(block).unwrap();
    assert_eq!(manifest["kind"], "ElastiService");
    manifest.to_string()
}

/// Applies README's manifest, puts the service to sleep, deletes what it stands on, breaks it: nothing ends the demo.
#[test]
#[allow(clippy::too_many_lines, reason = "one thing after the other")]
fn nothing_that_a_curious_user_does_ends_it() {
    let mut running = Running(
        demo(&["--cold-start", "300ms", "--patience", "20s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut seen = String::new();
    let mut lines = BufReader::new(running.0.stdout.take().unwrap())
        .lines()
        .map(|line| line.unwrap());
    let mut until = |word: &str| -> String {
        for line in lines.by_ref() {
            seen.push_str(&line);
            seen.push('\n');
            if line.contains(word) {
                return line;
            }
        }
        panic!("no {word:?} in:\n{seen}")
    };
    let watch = until("Watch:");
    let file = watch.split_whitespace().find(|word| word.starts_with('/'));
    let file = file.unwrap().to_owned();
    assert!(until("Request:").ends_with("# Service web"));
    let kubeconfig = std::fs::read_to_string(&file).unwrap();
    let typed = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elasti"));
        command.args(arguments).args(["--kubeconfig", &file]);
        let output = command.env_clear().output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.code(),
            text + &String::from_utf8_lossy(&output.stderr),
        )
    };
    until(" asleep ");
    let answer = send(&kubeconfig, "PATCH", SERVICE, &readme_manifest());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    until("ElastiService web was changed; its cooldown is 900 s");
    let (code, slept) = typed(&["sleep", "web", "--timeout", "60s"]);
    assert_eq!(code, Some(0), "{slept}");
    // Its trigger is read within a polling interval.
    while typed(&["why", "web"]).1.contains("TriggerUnknown") {
        std::thread::sleep(Duration::from_millis(100));
    }

    let (code, report) = typed(&["check"]);
    assert_eq!(code, Some(0), "{report}");
    assert!(!report.contains("FAIL"), "{report}");
    let pods = ask(&kubeconfig, "/api/v1/namespaces/elasti/pods");
    assert_eq!(pods.matches("\"restartCount\":0").count(), 2, "{pods}");
    assert!(!pods.contains("\"ready\":false"), "1/1: {pods}");

    // The next round tells how to end README's cooldown, and what ended it.
    let told = until(" waiting ");
    assert!(
        told.ends_with("`elasti sleep web` shortens its cooldown of 900 s"),
        "{told}"
    );
    let (code, slept) = typed(&["sleep", "web", "--timeout", "60s"]);
    assert_eq!(code, Some(0), "{slept}");
    let idle = until(" idle ");
    assert!(idle.contains("sleep was requested"), "{idle}");
    assert!(!idle.contains("cooldown"), "{idle}");

    assert!(send(&kubeconfig, "DELETE", DEPLOYMENT, "").starts_with("HTTP/1.1 200"));
    until("Deployment web was deleted; it is created again");
    assert!(send(&kubeconfig, "DELETE", SERVICE, "").starts_with("HTTP/1.1 200"));
    until("ElastiService web was deleted; it is created again");
    let broken = r#"{"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "missing:1"}]}}}}"#;
    assert!(send(&kubeconfig, "PATCH", DEPLOYMENT, broken).starts_with("HTTP/1.1 200"));
    until("image missing:1 cannot be pulled");
    until("Your turn");
    assert_eq!(running.0.try_wait().unwrap(), None, "it still runs");
    let id = running.0.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
}
