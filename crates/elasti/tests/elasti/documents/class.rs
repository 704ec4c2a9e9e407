//! Which test runs a command of the pages: exactly one class takes each.

use super::commands::Shown;

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `elasti` alone: tests/elasti/documents/fake_cluster.rs, as a process against a simulated cluster.
    FakeCluster,
    /// With `kubectl` or `helm` in it: tests/elasti/documents/cluster.rs, on a real cluster with the chart.
    Cluster,
    /// A sentence that speaks of a command: its help is run, where that command would be.
    Spoken { of_elasti: bool },
    /// `curl`: tests/elasti/documents/fake_cluster.rs, which asks the dashboard that the page has started.
    Request,
    /// A chore that a check of `cargo xtask test --ci` runs; the check's name.
    Checked(&'static str),
    /// Nothing runs it; why.
    Unchecked(&'static str),
}

/// Which check of `cargo xtask test --ci` runs which chore.
pub(super) const CHECKED: [(&str, &str); 20] = [
    ("cargo xtask test", ".ci/run"),
    ("cargo xtask generate", "generated files"),
    ("cargo xtask words", "words"),
    ("cargo xtask simulate", "simulation"),
    ("cargo xtask campaign", "crash campaign"),
    ("cargo xtask dashboard", "dashboard"),
    ("cargo xtask kustomize", "chart"),
    ("cargo xtask workflows", "workflows"),
    ("cargo xtask image", "real: e2e"),
    ("cargo xtask e2e", "real: e2e"),
    ("elasti demo --real", "real: e2e"),
    ("cargo xtask kubernetes up", "real: e2e"),
    ("cargo xtask kubernetes audit", "real: permissions"),
    ("cargo xtask kubernetes down", "real: end"),
    ("cargo xtask churn", "real: churn"),
    (
        "cargo run -p elasti-fake-cluster --example compare",
        "real: API server",
    ),
    ("cargo test", "tests"),
    // It asks a Prometheus of the user's; a test of `lint` has one.
    ("elasti lint --prometheus", "tests"),
    ("ELASTI_CORPUS=write cargo test", "tests"),
    // The same with fewer cycles.
    ("ELASTI_HOSTILE_CYCLES=50 cargo test", "tests"),
];

/// What nothing runs. Each line is a debt: keep it short.
pub(super) const UNCHECKED: [(&str, &str); 19] = [
    (
        "cargo xtask bench",
        "it measures, and a machine that does other things measures nothing",
    ),
    (
        "cargo run --release -p elasti-e2e --example ten_thousand",
        "it measures, as the benches do",
    ),
    (
        "cargo xtask release",
        "it builds the command line once more, for minutes; its parts have tests",
    ),
    (
        "ctr --namespace k8s.io images import elasti-image_VERSION_linux_ARCH.tar",
        "`cargo xtask release install` types it; a test of xtask holds README against what is typed there",
    ),
    (
        "tar -xzf elasti_VERSION_linux_ARCH.tar.gz",
        "`cargo xtask release install` types it, too",
    ),
    (
        "helm install elasti elasti-VERSION.tgz",
        "`cargo xtask release install` types it, too",
    ),
    (
        "curl -sSf http://$(kubectl get service web",
        "`cargo xtask release install` types it, too",
    ),
    (
        "cargo xtask book",
        "it builds mdBook, for minutes; tests follow every link and count the pages",
    ),
    (
        "cargo xtask recording",
        "it makes pictures; a test compares the recorded lines with what the demo prints",
    ),
    (
        "cargo install --path crates/elasti",
        "it writes into a home; what it builds is what the tests run",
    ),
    (
        "cargo xtask kubernetes kubectl",
        "it becomes kubectl, which the real checks call themselves",
    ),
    (
        "cargo +nightly install cargo-fuzz",
        "it needs a nightly compiler and the internet, and the page says so",
    ),
    (
        "cargo +nightly fuzz run",
        "it needs a nightly compiler, and the page says so",
    ),
    ("export PATH=", "it is for the fuzzer, too"),
    (
        "helm upgrade --install elasti-next",
        "it needs KubeElasti; tests/e2e/adoption.rs has what it left",
    ),
    (
        "kubectl scale deployment/elasti-operator-controller-manager -n elasti --replicas=0",
        "it needs KubeElasti, too",
    ),
    (
        "kubectl delete deployment,service,role,rolebinding,serviceaccount -n elasti",
        "it needs KubeElasti, too",
    ),
    (
        "kubectl delete clusterrole,clusterrolebinding -l app.kubernetes.io/instance=elasti",
        "it needs KubeElasti, too",
    ),
    (
        "kubectl delete secret -n elasti -l owner=helm,name=elasti",
        "it needs KubeElasti, too",
    ),
];

/// Programs that may stand behind a pipe, and are not run: what they are given is held against what they expect.
pub(super) const STRANGERS: [&str; 3] = ["jq", "man", "Out-String"];

impl Shown {
    /// Who runs it.
    pub(super) fn class(&self) -> Result<Class, String> {
        let stages = self.stages();
        let own: Vec<Vec<&str>> = stages
            .iter()
            .map(|words| words.iter().map(String::as_str).collect())
            .take_while(|words: &Vec<&str>| {
                !words.first().is_some_and(|one| STRANGERS.contains(one))
            })
            .collect();
        if let [words] = own.as_slice() {
            if self.in_prose
                && let Some(of_elasti) = speaks(words)
            {
                return Ok(Class::Spoken { of_elasti });
            }
            if let Some(chore) = chore(&words.join(" ")) {
                return Ok(chore);
            }
            if words.first() == Some(&"curl") {
                return Ok(Class::Request);
            }
        }
        if own.is_empty() || !own.iter().all(|words| is_run(words)) {
            return Err(
                "nothing runs this command: write it with elasti, kubectl or helm, or say in \
                 crates/elasti/tests/elasti/documents/class.rs which check runs it (CHECKED) or why none does (UNCHECKED)"
                    .to_owned(),
            );
        }
        match own.iter().any(|words| needs_cluster(words)) {
            true => Ok(Class::Cluster),
            false => Ok(Class::FakeCluster),
        }
    }
}

/// Whether a sentence names a command without saying what to do with it; and whether it is one of ours.
fn speaks(words: &[&str]) -> Option<bool> {
    let words: Vec<&str> = words.iter().copied().filter(|word| *word != "…").collect();
    match words.as_slice() {
        ["elasti"] | ["elasti", _] | ["kubectl", "elasti"] | ["kubectl", "elasti", _] => Some(true),
        ["helm", _]
        | ["kubectl", _]
        | [
            "kubectl",
            "rollout",
            "status" | "restart" | "history" | "undo",
        ]
        | ["kubectl", "auth", "can-i"]
        | ["kubectl", "create", "deployment" | "configmap"] => Some(false),
        _ => None,
    }
}

fn chore(text: &str) -> Option<Class> {
    let begins = |(prefix, _): &&(&str, &'static str)| {
        let rest = text.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' ') || prefix.ends_with('='))
    };
    let checked = CHECKED.iter().find(begins);
    let unchecked = UNCHECKED.iter().find(begins);
    checked
        .map(|(_, check)| Class::Checked(check))
        .or_else(|| unchecked.map(|(_, why)| Class::Unchecked(why)))
}

fn is_run(words: &[&str]) -> bool {
    match words {
        ["cargo", "run", ..] => words.contains(&"--") && !words.contains(&"-p"),
        ["xargs", program, ..] => ["elasti", "kubectl"].contains(program),
        [program, ..] => ["elasti", "kubectl", "helm"].contains(program),
        [] => false,
    }
}

fn needs_cluster(words: &[&str]) -> bool {
    match words {
        ["kubectl", "elasti", ..] => false,
        ["xargs", program, ..] | [program, ..] => ["kubectl", "helm"].contains(program),
        [] => false,
    }
}
