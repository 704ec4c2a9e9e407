//! What Grafana's dashboard and the alerts ask for is there: in the answers of running processes, not in a list.

use std::collections::{BTreeMap, BTreeSet};

use elasti_api::{ElastiService, names};
use elasti_e2e::{App, MERGE, TestEnv, blueprint, get, until};
use elasti_fake_cluster::prometheus::Reading;
use elasti_testkit::predecessor_metrics::{Family, RECORDED, families, lost};
use elasti_view::view::{Facts, Lookup, Workload, view};
use serde_json::{Value, json};

const DASHBOARD: &str = include_str!("../../../../deploy/helm/elasti/files/dashboard.json");
const ALERTS: &str = include_str!("../../../../deploy/helm/elasti/files/alerts.yaml");

/// Families of a process by name: their kind, and the labels of their series so far.
type Families = BTreeMap<String, (String, BTreeSet<String>)>;

/// Parses what a process answers at `/metrics`.
fn add_families(text: &str, families: &mut Families) {
    for line in text.lines() {
        if let Some(type_) = line.strip_prefix("# TYPE ") {
            let (name, kind) = type_.split_once(' ').unwrap();
            families.entry(name.into()).or_default().0 = kind.into();
        }
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else {
            continue;
        };
        let labels = rest.rsplit_once('}').unwrap().0;
        let words = labels.split("\",").filter_map(|one| one.split_once('='));
        let found = family(name, families);
        let found = found.unwrap_or_else(|| panic!("a series without a family: {line}"));
        let known = &mut families.get_mut(&found).unwrap().1;
        known.extend(words.map(|(label, _)| label.trim_start_matches(',').to_owned()));
    }
}

/// The family that a series belongs to: a histogram has three kinds of them, and no series of its own name.
fn family(name: &str, families: &Families) -> Option<String> {
    let is = |name: &str, histogram: bool| {
        let found = families.get(name)?;
        ((found.0 == "histogram") == histogram).then(|| name.to_owned())
    };
    let parts = ["_bucket", "_count", "_sum"];
    let base = parts.iter().find_map(|part| name.strip_suffix(part));
    is(name, false).or_else(|| is(base?, true))
}

/// Names of ours in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("elasti_"))
        .map(str::to_owned)
        .collect()
}

/// Labels by which an expression sums or selects.
fn labels(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in expression.split("by (").skip(1) {
        let list = part.split(')').next().unwrap();
        found.extend(list.split(',').map(|label| label.trim().to_owned()));
    }
    for part in expression.split('{').skip(1) {
        let list = part.split('}').next().unwrap();
        let matchers = list
            .split(',')
            .map(|one| one.split(['=', '!', '~']).next().unwrap());
        found.extend(matchers.map(|label| label.trim().to_owned()));
    }
    found
}

fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            all.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        all.push(variable["query"].as_str().unwrap().to_owned());
    }
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    for rule in alerts["groups"][0]["rules"].as_array().unwrap() {
        all.push(rule["expr"].as_str().unwrap().to_owned());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_grafana_and_the_alerts_ask_for_is_served() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    web.visit().await;
    web.until_serving().await;
    let mut families = Families::new();
    let operator = env.operator_address(0).to_string();
    for address in env.resolver_addresses().into_iter().chain([operator]) {
        let answer = get(&format!("{address}:8013"), "/metrics").await.unwrap();
        add_families(&answer.body, &mut families);
    }
    let expressions = expressions();
    assert!(expressions.len() > 15, "{expressions:?}");
    for expression in expressions {
        let mut known = BTreeSet::from(["le".to_owned()]);
        let mut all_have_series = true;
        for name in names(&expression) {
            let Some(family) = family(&name, &families) else {
                panic!("no process serves {name}, which {expression:?} asks for");
            };
            let labels = &families[&family].1;
            all_have_series &= !labels.is_empty();
            known.extend(labels.iter().cloned());
        }
        // Where nothing has happened yet, there is no series to compare with.
        let missing: Vec<String> = labels(&expression).difference(&known).cloned().collect();
        assert!(
            missing.is_empty() || !all_have_series,
            "{missing:?} is no label of what {expression:?} asks for"
        );
    }
}

/// Those that were recorded of the service with this name; the other one there has no twin here.
fn recorded(prefix: &str) -> BTreeMap<String, Family> {
    let mut families = families(RECORDED, prefix);
    for family in families.values_mut() {
        let of_other = |value: &String| value.contains("target-elastiservice");
        family
            .series
            .retain(|(_, labels), _| !labels.values().any(of_other));
    }
    families
}

/// The same as was done when they were recorded: a service sleeps, and a request wakes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboards_for_kubeelasti_find_every_series_of_its_operator() {
    let env = TestEnv::start().await;
    let target = env.deploy("target").await;
    target.until_serving().await;
    target.fall_asleep().await;
    let mode = |text: &str| {
        let families = families(text, "elasti_operator_mode");
        let mut values = families["elasti_operator_mode"].series.values();
        values.next().cloned()
    };
    assert_eq!(mode(&env.metrics(0)).as_deref(), Some("1"));
    target.visit().await;
    target.until_serving().await;
    let theirs = recorded("elasti_operator_");
    assert!(theirs.values().all(|family| !family.series.is_empty()));
    let mut text = String::new();
    until("it serves again in the metrics, too", async || {
        text = env.metrics(0);
        mode(&text).as_deref() == Some("0")
    })
    .await;
    let ours = families(&text, "elasti_operator_");
    assert_eq!(lost(&theirs, &ours), Vec::<String>::new(), "{text}");
}

/// The value of a series of an operator's own.
fn counted(text: &str, family: &str) -> i64 {
    let series = format!("{family}{{crd_name=\"default/web\",namespace=\"default\"}} ");
    let found = text.lines().find_map(|line| line.strip_prefix(&series));
    found.map_or(0, |value| value.parse().unwrap())
}

/// What the page shows of it now: seconds asleep, and hours of pods and CPU.
async fn shown(env: &TestEnv, web: &App) -> (i64, [f64; 3]) {
    let me: ElastiService = serde_json::from_value(web.object().await).unwrap();
    let target = env.api().get(&web.target_path()).await;
    let view = view(Facts {
        me: &me,
        target: &Lookup::Found(Workload::from_object(&target)),
        held: None,
        now: env.fake_cluster().server.clock().now(),
    });
    let saved = view.saved;
    let hours = [saved.pod_hours, saved.cpu_hours, saved.gib_hours];
    (view.asleep.seconds, hours)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sleep_saves_is_counted_while_it_lasts_and_is_what_the_page_shows() {
    let env = TestEnv::with(|config| {
        config.operators = 2;
        config.leader_elect = true;
    })
    .await;
    let mut plan = blueprint("web");
    plan.requests = json!({"cpu": "2", "memory": "4Gi"});
    let web = env.build(plan).await;
    web.until_serving().await;
    web.fall_asleep().await;
    let families =
        ["pod", "cpu", "memory_gib"].map(|of| format!("elasti_operator_saved_{of}_seconds"));
    let leader = env.leaders()[0];
    let mut last = [0; 3];
    for _ in 0..3 {
        let least = shown(&env, &web).await;
        let mut text = String::new();
        until("it grows while it sleeps", async || {
            text = env.metrics(leader);
            families
                .iter()
                .zip(last)
                .all(|(family, last)| counted(&text, family) > last)
        })
        .await;
        let most = shown(&env, &web).await;
        let seconds = counted(&text, "elasti_operator_asleep_seconds");
        assert!(
            (least.0..=most.0).contains(&seconds),
            "{least:?} {seconds} {most:?}"
        );
        for (at, family) in families.iter().enumerate() {
            let value = counted(&text, family);
            let exact = |hours: f64| (hours * 3600.0).round() as i64;
            let (least, most) = (exact(least.1[at]), exact(most.1[at]));
            assert!(
                (least..=most).contains(&value),
                "{family}: {least} {value} {most}"
            );
            assert!(value > last[at], "{family}");
            last[at] = value;
        }
    }
    assert_eq!(web.replicas().await, 0);
    let other = env.metrics(1 - leader);
    assert!(
        !other.contains("saved_cpu_seconds{"),
        "counted twice: {other}"
    );
}

#[test]
fn grafana_can_lay_the_panels_out() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(
            ids.insert(panel["id"].as_u64().unwrap()),
            "{title} has another's id"
        );
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} sticks out");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{title} lies on another panel");
            }
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let references: Vec<&str> = panel["targets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["refId"].as_str().unwrap())
            .collect();
        let unique: BTreeSet<&&str> = references.iter().collect();
        assert!(
            !references.is_empty() && unique.len() == references.len(),
            "{title}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_without_series_are_named_by_a_condition_and_one_event() {
    let env = TestEnv::start().await;
    let stub = &env.fake_cluster().prometheus;
    stub.compute(|query| match query {
        query if query.starts_with("count(") => Some(Reading::Empty),
        query if query.contains("reqests") => Some(Reading::Value(0.0)),
        _ => None,
    });
    let mut misspelt = blueprint("web");
    let metadata = json!({"query": "sum(reqests_total) or vector(0)", "threshold": "1", "serverAddress": env.prometheus()});
    misspelt.spec =
        json!({"cooldownPeriod": 900, "triggers": [{"type": "prometheus", "metadata": metadata}]});
    let web = env.build(misspelt).await;
    let warnings = async || {
        let mut events = web.events("ElastiService").await;
        events.retain(|event| event["reason"] == names::event::METRICS_MISSING);
        events
    };
    until("an Event says so", async || !warnings().await.is_empty()).await;
    let condition = async || {
        let mut conditions = web.status().await.conditions.into_iter();
        conditions.find(|one| one.type_ == names::condition::METRICS_MISSING)
    };
    let first = condition().await.unwrap();
    let message = first.message;
    assert!(message.contains("reqests_total"), "{message}");
    let said = warnings().await;
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0]["type"], "Warning");
    assert_eq!(said[0]["note"], message.as_str());
    // Another spec is checked anew, and told of once too.
    let change = json!({"spec": {"cooldownPeriod": 800}});
    env.api().patch(&web.path(), MERGE, change).await;
    until("it is checked anew", async || {
        let now = condition().await;
        now.is_some_and(|now| now.observed_generation > first.observed_generation)
    })
    .await;
    until("an Event says so again", async || {
        warnings().await.len() == 2
    })
    .await;
}
