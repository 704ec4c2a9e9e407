//! The files of a release on a fresh cluster, with nothing but kubectl and Helm beside them: `cargo xtask release install`.
//! What a user types from the first file to the first answer is one short table, and README shows the same lines.

use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::binary::PROGRAM;
use super::{Platform, VERSION, chart, checksums, folder};
use crate::churn::world::{self, RELEASE};
use crate::kubernetes::nodes::Node;
use crate::kubernetes::{self, go_programs, layout};
use crate::{image, paths};

/// What README promises until a sleeping app has answered: at most so many commands, and so much time.
const MAX_COMMANDS: usize = 6;
const MAX_TIME: Duration = Duration::from_secs(300);

/// The app, its Service and its ElastiService.
const APP: &str = "web";
/// A page of the app with a short answer, and what only the app itself answers.
const PAGE: &str = "hostname";
const ANSWER: &str = "\"hostname\"";

/// Installs, puts a service to sleep, wakes it by a request, and uninstalls. The cluster stays.
pub(super) fn run() -> Result<(), Box<dyn Error>> {
    let platform = Platform::of_this_machine()?;
    if !folder().join(platform.archive()).exists() {
        return Err("no files of a release; `cargo xtask release --dry-run` first".into());
    }
    // What another test has installed or loaded must not help.
    kubernetes::run(&["down"]).ok_or("kubernetes down is not known")??;
    world::up("iptables", 1)?;
    let user = User::new()?;
    user.types(&format!("sha256sum --check --quiet {}", checksums::NAME))?;
    user.types("kubectl apply -f app.yaml")?;
    user.types(&format!("kubectl rollout status deployment/{APP}"))?;
    let typed = typed(&Names {
        image: platform.image_archive(),
        archive: platform.archive(),
        chart: chart::package_name(),
        prometheus: layout::prometheus(),
        page: PAGE.to_owned(),
    });
    let start = Instant::now();
    let mut said = Vec::new();
    for line in &typed {
        said.push((line.as_str(), user.types(line)?));
    }
    let took = start.elapsed();
    println!("{} commands in {:.0} s", typed.len(), took.as_secs_f32());
    let transcript = paths::target().join("release-staging/transcript.txt");
    fs::write(&transcript, transcript_of(&said))?;
    println!("transcript: {}", transcript.display());
    judge(typed.len(), took, said.last().map_or("", |(_, said)| said))?;
    looks_right_and_goes(&user)
}

/// What differs between this machine and README.
struct Names {
    image: String,
    archive: String,
    chart: String,
    prometheus: String,
    page: String,
}

/// What a user types in the folder of the release, once an app runs: the image in place of a registry, the command line,
/// the chart, the app's ElastiService, its sleep, and the request that wakes it.
fn typed(names: &Names) -> Vec<String> {
    let Names {
        image,
        archive,
        chart,
        prometheus,
        page,
    } = names;
    vec![
        format!("ctr --namespace k8s.io images import {image}"),
        format!("tar -xzf {archive} -C ~/.local/bin {PROGRAM}"),
        format!(
            "helm install {RELEASE} {chart} --namespace {RELEASE} --create-namespace --wait \
             --set elastiController.manager.env.prometheusTriggerServerAddress={prometheus}"
        ),
        format!("kubectl apply -f {APP}.yaml"),
        format!("{PROGRAM} sleep {APP}"),
        format!(
            "curl -sSf http://$(kubectl get service {APP} -o jsonpath='{{.spec.clusterIP}}')/{page}"
        ),
    ]
}

fn transcript_of(said: &[(&str, String)]) -> String {
    let one = |(line, said): &(&str, String)| format!("$ {line}\n{}\n", said.trim_end());
    said.iter().map(one).collect()
}

/// Whether the promise is kept.
fn judge(commands: usize, took: Duration, answer: &str) -> Result<(), Box<dyn Error>> {
    if commands > MAX_COMMANDS {
        return Err(format!("{commands} commands; README promises {MAX_COMMANDS}").into());
    }
    if took > MAX_TIME {
        return Err(format!("it took {took:?}; README promises {MAX_TIME:?}").into());
    }
    match answer.contains(ANSWER) {
        true => Ok(()),
        false => Err(format!("not the app's own answer: {answer}").into()),
    }
}

/// What a careful user looks at, and the end.
fn looks_right_and_goes(user: &User) -> Result<(), Box<dyn Error>> {
    let said = user.types(&format!("{PROGRAM} version"))?;
    if !said.contains(VERSION) {
        return Err(format!("it has another version: {said}").into());
    }
    for line in [
        format!("{PROGRAM} check"),
        format!("{PROGRAM} why {APP}"),
        format!("kubectl delete -f {APP}.yaml -f app.yaml --timeout=120s"),
        format!("helm uninstall {RELEASE} --namespace {RELEASE} --wait"),
    ] {
        user.types(&line)?;
    }
    Ok(())
}

/// Someone with a shell in a folder with the files of the release and two of their own, and a PATH without anything of
/// ours.
struct User {
    folder: PathBuf,
    home: PathBuf,
}

impl User {
    fn new() -> Result<Self, Box<dyn Error>> {
        let home = paths::target().join("release-staging/home");
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        let user = Self {
            folder: home.join("release"),
            home,
        };
        fs::create_dir_all(user.bin())?;
        fs::create_dir_all(&user.folder)?;
        symlink(go_programs::kube("kubectl")?, user.bin().join("kubectl"))?;
        symlink(go_programs::HELM.path()?, user.bin().join("helm"))?;
        for file in fs::read_dir(folder())? {
            let file = file?;
            symlink(file.path(), user.folder.join(file.file_name()))?;
        }
        fs::write(user.folder.join("app.yaml"), app())?;
        fs::write(user.folder.join(format!("{APP}.yaml")), elasti_service())?;
        Ok(user)
    }

    fn bin(&self) -> PathBuf {
        self.home.join(".local/bin")
    }

    /// Types a line, which must end with 0; gives what it printed.
    fn types(&self, line: &str) -> Result<String, Box<dyn Error>> {
        println!("$ {line}");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.bin().display());
        let output = Command::new("sh")
            .args(["-c", &format!("exec 2>&1\n{line}")])
            .current_dir(&self.folder)
            .env("HOME", &self.home)
            .env("PATH", path)
            .env("KUBECONFIG", layout::kubeconfig())
            // The node of this machine has a containerd of its own.
            .env("CONTAINERD_ADDRESS", first_node()?.containerd_socket())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{}", said.trim_end());
        match output.status.success() {
            true => Ok(said),
            false => Err(format!("`{line}` ended with {}", output.status).into()),
        }
    }
}

fn first_node() -> Result<Node, Box<dyn Error>> {
    let first = Node::all().into_iter().next();
    Ok(first.ok_or("the cluster has no node")?)
}

/// An app that Elasti does not know yet.
fn app() -> String {
    let image = image::HTTPBIN;
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {APP}}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: {APP}}}}}
  template:
    metadata: {{labels: {{app: {APP}}}}}
    spec:
      containers:
        - name: app
          image: {image}
          imagePullPolicy: Never
          ports: [{{containerPort: 8080}}]
          readinessProbe: {{httpGet: {{path: /status/200, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: {APP}}}
spec:
  selector: {{app: {APP}}}
  ports: [{{name: http, port: 80, targetPort: 8080}}]
"
    )
}

/// As in README, but for the query: nothing counts this app's requests.
fn elasti_service() -> String {
    format!(
        "apiVersion: elasti.truefoundry.com/v1alpha1
kind: ElastiService
metadata:
  name: {APP}
spec:
  service: {APP}
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {APP}
  cooldownPeriod: 900
  triggers:
    - type: prometheus
      metadata:
        query: vector(0)
        threshold: \"0.5\"
"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ANSWER, MAX_COMMANDS, MAX_TIME, Names, judge, transcript_of, typed};
    use crate::paths::root;

    fn as_in_readme() -> Vec<String> {
        typed(&Names {
            image: "elasti-image_VERSION_linux_ARCH.tar".to_owned(),
            archive: "elasti_VERSION_linux_ARCH.tar.gz".to_owned(),
            chart: "elasti-VERSION.tgz".to_owned(),
            prometheus: "http://PROMETHEUS:9090".to_owned(),
            page: String::new(),
        })
    }

    #[test]
    fn readme_shows_what_is_typed_in_this_order() {
        let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
        let readme = readme.replace(" \\\n  ", " ");
        let mut rest = readme.as_str();
        for line in as_in_readme() {
            let at = rest.find(&format!("\n{line}"));
            let at = at.unwrap_or_else(|| panic!("README does not show, or not here: {line}"));
            rest = &rest[at + 1..];
        }
    }

    #[test]
    fn the_promise_is_six_commands_in_five_minutes_and_the_answer_of_the_app() {
        let took = Duration::from_secs(60);
        assert!(judge(as_in_readme().len(), took, ANSWER).is_ok());
        assert!(judge(MAX_COMMANDS + 1, took, ANSWER).is_err());
        assert!(judge(MAX_COMMANDS, MAX_TIME + took, ANSWER).is_err());
        assert!(judge(MAX_COMMANDS, took, "503 Service Unavailable").is_err());
    }

    #[test]
    fn a_transcript_has_each_line_with_what_it_printed() {
        let said = [("a", "one\n".to_owned()), ("b", "two".to_owned())];
        assert_eq!(transcript_of(&said), "$ a\none\n$ b\ntwo\n");
    }
}
