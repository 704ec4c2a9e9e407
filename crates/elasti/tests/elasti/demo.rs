//! `elasti demo` as a process: its lines and its exit code.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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

#[test]
fn the_readme_shows_what_the_demo_prints() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let block = readme
        .split("```")
        .find(|block| block.contains("Elasti demo:"));
    let block = block.expect("README.md has a transcript of the demo");
    let shown = block
        .trim()
        .lines()
        .skip_while(|line| !line.starts_with("Elasti demo:"));
    let (output, out, err) = printed(&["--once"]);
    assert!(output.status.success(), "{out}\n{err}");
    let shown: Vec<String> = shown.map(normalised).collect();
    let printed: Vec<String> = out.trim().lines().map(normalised).collect();
    assert_eq!(shown, printed, "copy this into README.md:\n{out}");
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
    let server = kubeconfig.split("server: http://").nth(1).unwrap();
    let (address, prefix) = server.lines().next().unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /{prefix}{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
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
