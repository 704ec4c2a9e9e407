//! `elasti list` and `elasti top`: what fits, what is asked for, and what it costs.

use std::process::Stdio;
use std::time::Duration;

use elasti_e2e::{MERGE, until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use super::fixture::{DEPLOYMENTS, ELASTI, Fixture, days_ago, merge, saved, seconds_ago};

fn asleep() -> Value {
    let mut status = json!({
        "phase": "Asleep", "mode": "proxy", "reason": "Idle", "replicas": 0, "observedGeneration": 1,
        "lastSleepTime": days_ago(5), "asleepSeconds": 433_000, "lastScaledUpTime": days_ago(7),
        "conditions": [{"type": "Ready", "status": "True", "reason": "Idle", "message": "s", "lastTransitionTime": days_ago(5)}],
    });
    merge(&mut status, &saved(1, 433_000, Some(days_ago(5))));
    status
}

fn stuck() -> Value {
    json!({
        "phase": "Waking", "mode": "proxy", "reason": "ImagePull", "replicas": 1, "observedGeneration": 1, "held": 7,
        "lastScaledUpTime": days_ago(3), "quietSince": days_ago(9),
        "conditions": [{"type": "Ready", "status": "False", "reason": "ImagePull", "message": "s", "lastTransitionTime": days_ago(3)}],
    })
}

fn cooling() -> Value {
    json!({
        "phase": "Serving", "mode": "serve", "reason": "CoolingDown", "replicas": 1, "observedGeneration": 1, "quietSince": days_ago(1),
        "triggers": [{"type": "prometheus", "reading": "quiet", "value": "0", "threshold": "0.5", "since": days_ago(1)}],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "CoolingDown", "message": "s", "lastTransitionTime": days_ago(4)},
            {"type": "TrafficRedirected", "status": "False", "reason": "Serve", "message": "s", "lastTransitionTime": days_ago(4)},
        ],
    })
}

async fn a_few() -> Fixture {
    let fixture = Fixture::unattended().await;
    for (name, replicas, status) in [
        ("api", 0, asleep()),
        ("cart", 1, stuck()),
        ("web", 1, cooling()),
    ] {
        fixture.workload(name, replicas, json!({})).await;
        fixture.declare(name, json!({})).await;
        fixture.status(name, status).await;
    }
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_services() {
    let fixture = a_few().await;
    let mut transcript = String::new();
    for arguments in [
        &["list"] as &[&str],
        &["list", "-A", "--sort", "urgency"],
        &["list", "-o", "wide"],
        &["list", "-o", "name"],
        &["list", "-n", "elsewhere"],
        &["list", "-l", "team=none"],
        &["top", "--once"],
        &["top", "-A", "-o", "json"],
        &["list", "--sort", "colour"],
        &["list", "-n", "default", "-A"],
        &["list", "-o", "table"],
    ] {
        let mut printed = fixture.types(arguments).await;
        if arguments.contains(&"json") {
            // The items are those of `list -o json`.
            printed = printed.split("  \"items\"").next().unwrap().to_owned() + "  …\n";
        }
        transcript.push_str(&printed);
        transcript.push('\n');
    }
    insta::assert_snapshot!(transcript);
}

/// Without the entries of months and days: how many a sleep of five days touches depends on the day of the test.
fn without_entries(printed: &str) -> String {
    let mut kept = Vec::new();
    let mut inside = false;
    for line in printed.lines() {
        let word = line.trim();
        match (inside, word) {
            (false, r#""months": ["# | r#""podHoursByDay": ["#) => {
                kept.push(format!("{line} … ]"));
                inside = true;
            }
            (false, _) => kept.push(line.to_owned()),
            (true, _) => inside = !word.starts_with(']'),
        }
    }
    kept.join("\n") + "\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_as_data() {
    let fixture = a_few().await;
    let printed = fixture.types(&["list", "-o", "json"]).await;
    insta::assert_snapshot!("list_as_json", without_entries(&printed));
    let yaml = fixture
        .elasti(&["list", "-o", "yaml"])
        .output()
        .await
        .unwrap();
    let json = fixture
        .elasti(&["list", "-o", "json"])
        .output()
        .await
        .unwrap();
    let mut json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let mut yaml: Value = serde_saphyr::from_str(&String::from_utf8(yaml.stdout).unwrap()).unwrap();
    // What is counted by the second may differ between two calls.
    for items in [&mut json["items"], &mut yaml["items"]] {
        for item in items.as_array_mut().unwrap() {
            item["asleep"] = Value::Null;
            item["saved"] = Value::Null;
            item["savedCalendar"] = Value::Null;
        }
    }
    assert_eq!(json, yaml);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_may_not_be_read_is_reported_and_the_rest_is_shown() {
    let fixture = Fixture::with(|config| {
        config.operators = 0;
        config.resolvers = 0;
        config.api.epoch = Some(jiff::Timestamp::now() - jiff::SignedDuration::from_hours(480));
        config.api.enforce_rbac = true;
    })
    .await;
    fixture.workload("web", 0, json!({})).await;
    fixture.declare("web", json!({})).await;
    fixture.status("web", asleep()).await;
    super::errors::as_account(&fixture, "viewer", json!([{"apiGroups": ["elasti.truefoundry.com"], "resources": ["elastiservices"], "verbs": ["get", "list"]}])).await;
    let mut transcript = fixture.types(&["list"]).await;
    transcript.push_str(&fixture.types(&["list", "-A"]).await);
    insta::assert_snapshot!(transcript);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_services_are_one_list_a_kind_and_fit_80_columns() {
    let fixture = Fixture::unattended().await;
    for number in 0..1000 {
        let name = format!("a-service-with-quite-a-long-name-indeed-{number:04}");
        let spec = json!({
            "service": name, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "triggers": [{"type": "prometheus", "metadata": {"query": "q", "threshold": "1"}}],
        });
        let object = json!({"apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService", "metadata": {"name": name}, "spec": spec});
        fixture.env.api().make(ELASTI, object).await;
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "echo:1"}]}});
        let target = json!({"metadata": {"name": name}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template}});
        fixture.env.api().make(DEPLOYMENTS, target).await;
        fixture.status(&name, asleep()).await;
    }
    let faults = fixture.env.fake_cluster().server.faults();
    // One of them is for where the resolvers are: there is none, so none is asked for held requests.
    for (arguments, calls) in [
        (&["list", "-A"] as &[&str], 3),
        (&["top", "--once", "-A"], 3),
    ] {
        let before = faults.calls();
        let mut command = fixture.elasti(arguments);
        let output = command.env("COLUMNS", "80").output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(faults.calls() - before, calls, "one list for each kind");
        let rows = text.lines().filter(|line| line.contains("Asleep")).count();
        assert_eq!(rows, 1000);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_top_tells_each_change_in_a_line() {
    let fixture = a_few().await;
    let mut top = fixture
        .elasti(&["top"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut next = async || {
        let limit = std::time::Duration::from_secs(120);
        timeout(limit, lines.next_line())
            .await
            .expect("it says nothing more")
            .unwrap()
            .unwrap()
    };
    // The most urgent come first, so the one that sleeps comes last.
    while !next().await.starts_with("api ") {}
    fixture
        .status("web", json!({"phase": "Redirecting", "reason": "Idle"}))
        .await;
    let line = next().await;
    assert!(line.ends_with("default/web  Redirecting  Idle"), "{line}");
    fixture
        .env
        .api()
        .patch(
            &format!("{ELASTI}/web"),
            MERGE,
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    fixture.env.api().delete(&format!("{ELASTI}/web")).await;
    let line = next().await;
    assert!(line.ends_with("default/web  deleted"), "{line}");
    top.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn list_and_top_ask_the_resolvers_for_held_requests() {
    let fixture = Fixture::with(|_| {}).await;
    let web = fixture.env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    // No status is written from now on.
    fixture.env.kill_operator(0).await;
    let visitors = [web.visitor(), web.visitor()];
    until("they wait", async || fixture.env.held() == 2).await;
    let printed = fixture.types(&["top", "--once"]).await;
    assert!(printed.contains("; 2 held; "), "{printed}");
    let listed = fixture.types(&["list", "-o", "json"]).await;
    assert!(listed.contains("\"heldLive\": true"), "{listed}");
    web.scale_by_hand(1).await;
    for visitor in visitors {
        visitor.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_listed_by_name_and_a_missing_one_is_an_error() {
    let fixture = a_few().await;
    let printed = fixture.types(&["list", "web", "els/api"]).await;
    assert!(
        printed.contains("\nweb ") && printed.contains("\napi "),
        "{printed}"
    );
    assert!(!printed.contains("cart"), "{printed}");
    let printed = fixture.types(&["list", "web", "nowhere"]).await;
    assert!(printed.contains("\nweb "), "{printed}");
    assert!(
        printed.contains("elastiservices \"nowhere\" not found"),
        "{printed}"
    );
    assert!(printed.contains("[exit 1]"), "{printed}");
    let printed = fixture.types(&["pause", "-l", "team=none"]).await;
    assert!(
        printed.contains("no ElastiService has the labels team=none"),
        "{printed}"
    );
}

/// Both ask the resolvers, or both show what the operator last reported and say so.
#[tokio::test(flavor = "multi_thread")]
async fn list_and_top_show_the_same_held_requests() {
    let fixture = a_few().await;
    let held = async |arguments: &[&str]| {
        let output = fixture.elasti(arguments).output().await.unwrap();
        let data: Value = serde_json::from_slice(&output.stdout).unwrap();
        let items = data["items"].as_array().unwrap().clone();
        let held = items
            .iter()
            .map(|one| (one["held"].clone(), one["heldLive"].clone()));
        held.collect::<Vec<_>>()
    };
    let (list, top) = (
        held(&["list", "-o", "json"]).await,
        held(&["top", "--sort", "name", "-o", "json"]).await,
    );
    assert_eq!(list, top);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_list_prints_a_row_for_each_change() {
    let fixture = a_few().await;
    let mut command = fixture.elasti(&["list", "-w", "web"]);
    let mut child = command
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || lines.next_line().await.unwrap().unwrap();
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.contains("CoolingDown"));
    fixture.status("web", asleep()).await;
    let row = timeout(std::time::Duration::from_secs(60), next())
        .await
        .unwrap();
    assert!(row.starts_with("web") && row.contains("Asleep"), "{row}");
}

/// `elasti list -w` in a process of its own, line by line.
struct WatchedList {
    _process: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl WatchedList {
    fn start(fixture: &Fixture, arguments: &[&str]) -> Self {
        let mut command = fixture.elasti(arguments);
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            _process: process,
            lines,
        }
    }

    async fn line(&mut self) -> String {
        let line = timeout(Duration::from_secs(120), self.lines.next_line()).await;
        line.expect("it says nothing more").unwrap().unwrap()
    }

    /// The lines up to this one.
    async fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        loop {
            let line = self.line().await;
            text.push_str(&line);
            text.push('\n');
            if line == end {
                return text;
            }
        }
    }
}

/// Two services whose ages are counted in seconds, so that they change from one look to the next.
async fn two_young() -> Fixture {
    let fixture = Fixture::unattended().await;
    for name in ["a-much-longer-name", "web"] {
        fixture.workload(name, 1, json!({})).await;
        fixture.declare(name, json!({})).await;
        let mut status = cooling();
        status["conditions"][0]["lastTransitionTime"] = json!(seconds_ago(3));
        status["conditions"][1]["lastTransitionTime"] = json!(seconds_ago(3));
        status["quietSince"] = json!(seconds_ago(3));
        fixture.status(name, status).await;
    }
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_list_prints_an_aligned_row_for_each_change_and_only_for_changes() {
    let fixture = two_young().await;
    let mut list = WatchedList::start(&fixture, &["list", "-w"]);
    let heading = list.line().await;
    let first = [list.line().await, list.line().await];
    assert!(first[0].starts_with("a-much-longer-name") && first[1].starts_with("web"));
    // Every age has changed by then.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut held = asleep();
    held["held"] = json!(7);
    fixture.status("web", held).await;
    let row = list.line().await;
    assert!(row.starts_with("web ") && row.contains("Asleep"), "{row}");
    for (title, text) in [("PHASE", "Asleep"), ("HELD", "7*"), ("REASON", "Idle")] {
        assert_eq!(heading.find(title), row.find(text), "{heading}\n{row}");
    }
    fixture
        .status("web", json!({"reason": "WakeRequested"}))
        .await;
    let row = list.line().await;
    assert!(
        row.starts_with("web ") && row.contains("WakeRequested"),
        "{row}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_list_as_data_is_one_document_for_each_service_and_change() {
    let fixture = two_young().await;
    let mut list = WatchedList::start(&fixture, &["list", "-w", "-o", "json"]);
    let mut next = async || -> Value { serde_json::from_str(&list.until("}").await).unwrap() };
    assert_eq!(next().await["name"], "a-much-longer-name");
    assert_eq!(next().await["name"], "web");
    fixture.status("web", asleep()).await;
    let changed = next().await;
    assert_eq!(
        (&changed["name"], &changed["phase"]),
        (&json!("web"), &json!("Asleep"))
    );
    let mut list = WatchedList::start(&fixture, &["list", "-w", "-o", "yaml", "web"]);
    assert_eq!(list.line().await, "---");
    assert_eq!(list.line().await, "namespace: default");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_watched_from_empty_prints_its_heading_with_the_first_row() {
    let fixture = Fixture::unattended().await;
    let mut list = WatchedList::start(&fixture, &["list", "-w"]);
    fixture.workload("web", 1, json!({})).await;
    fixture.declare("web", json!({})).await;
    assert!(list.line().await.starts_with("NAME"));
    assert!(list.line().await.starts_with("web "));
}
