//! The controllers of others that run beside Elasti: KEDA, Argo Rollouts, metrics-server and Traefik, of the versions that
//! their Go modules have, on the host. Their CRDs come from the same modules.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::certificates;
use super::components::{self, in_state, key, kubeconfig_flag};
use super::go_programs::{KEDA, METRICS_SERVER, ROLLOUTS, TRAEFIK};
use super::layout::{self, NODE_ADDRESS};
use super::{ProxyMode, process, ready};

/// Not the usual ports: other programs of this machine may have them.
const KEDA_METRICS_PORT: u16 = 19180;
const KEDA_HEALTH_PORT: u16 = 19181;
const KEDA_GRPC_PORT: u16 = 19182;
const ROLLOUTS_METRICS_PORT: u16 = 19190;
const ROLLOUTS_HEALTH_PORT: u16 = 19191;
const METRICS_SERVER_PORT: u16 = 19443;
/// Where Traefik takes requests, and where it shows its configuration.
const TRAEFIK_PORT: u16 = 19480;
const TRAEFIK_ADMIN_PORT: u16 = 19481;

const TRAEFIK_DEFINITIONS: &str =
    "docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml";

/// Where KEDA would be installed: it looks for the Secrets of cluster-wide objects there.
const KEDA_NAMESPACE: &str = "keda";

/// Builds those that are not cached.
pub(crate) fn build() -> Result<(), Box<dyn Error>> {
    for program in [&METRICS_SERVER, &ROLLOUTS, &KEDA, &TRAEFIK] {
        program.path()?;
    }
    Ok(())
}

/// What end-to-end tests are told of them.
pub(crate) fn variables() -> [(&'static str, String); 3] {
    [
        ("ELASTI_E2E_PARTNERS", "true".into()),
        (
            "ELASTI_E2E_TRAEFIK",
            format!("{NODE_ADDRESS}:{TRAEFIK_PORT}"),
        ),
        (
            "ELASTI_E2E_TRAEFIK_ADMIN",
            format!("{NODE_ADDRESS}:{TRAEFIK_ADMIN_PORT}"),
        ),
    ]
}

/// Starts all of them, with their CRDs, and waits until they are ready.
pub(crate) fn start() -> Result<(), Box<dyn Error>> {
    let mode = ProxyMode::of_cluster().ok_or("no cluster is up; `cargo xtask kubernetes up`")?;
    if !certificates::folder().join("front-proxy.crt").exists() {
        return Err(
            "this cluster was started without aggregation; `cargo xtask kubernetes down` first"
                .into(),
        );
    }
    build()?;
    write_keda_certificates()?;
    apply_definitions()?;
    ready::apply(&service_of_metrics_server())?;
    ready::apply(&fs::read_to_string(api_service()?)?)?;
    for name in components::PARTNERS {
        components::process(name, mode)?.start()?;
    }
    ready::wait("keda", || ready::answers(KEDA_HEALTH_PORT, "/readyz"))?;
    ready::wait("argo-rollouts", || {
        ready::answers(ROLLOUTS_HEALTH_PORT, "/healthz")
    })?;
    ready::wait("traefik", || ready::answers(TRAEFIK_ADMIN_PORT, "/ping"))?;
    let available = "--for=condition=Available";
    ready::wait("metrics-server", || {
        ready::succeeds(&["wait", available, API_SERVICE, "--timeout=2s"])
    })
}

/// Stops all of them and removes their CRDs: other tests put stand-ins in their place.
pub(crate) fn stop() -> Result<(), Box<dyn Error>> {
    // KEDA is needed until its objects are gone: they have its finalizer.
    for file in definitions()? {
        let file = file.display().to_string();
        delete(&["--filename", &file])?;
    }
    delete(&[API_SERVICE])?;
    delete(&["--namespace=kube-system", "service/metrics-server"])?;
    for name in components::PARTNERS {
        process::stop(name)?;
    }
    Ok(())
}

fn delete(what: &[&str]) -> Result<(), Box<dyn Error>> {
    let flags = ["delete", "--ignore-not-found", "--timeout=120s"];
    let arguments = [&flags, what].concat();
    let status = ready::kubectl(&arguments)?.stdout(Stdio::null()).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("kubectl {} ended with {status}", arguments.join(" ")).into()),
    }
}

/// The CRDs of the partners, as files of their modules.
fn definitions() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for (sources, folder) in [
        (KEDA.sources()?, "config/crd/bases"),
        (ROLLOUTS.sources()?, "manifests/crds"),
    ] {
        for entry in fs::read_dir(sources.join(folder))? {
            files.push(entry?.path());
        }
    }
    files.push(TRAEFIK.sources()?.join(TRAEFIK_DEFINITIONS));
    // For Kustomize, not for kubectl.
    files.retain(|file| !file.ends_with("kustomization.yaml"));
    files.sort();
    Ok(files)
}

/// They may be too large for the annotation of a client-side apply, and replace stand-ins of the same names.
fn apply_definitions() -> Result<(), Box<dyn Error>> {
    for file in definitions()? {
        let file = file.display().to_string();
        let flags = ["--server-side", "--force-conflicts", "--filename", &file];
        let output = ready::kubectl(&[&["apply"], &flags[..]].concat())?.output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let established = "--for=condition=Established";
        ready::wait("kube-apiserver", || {
            ready::succeeds(&["wait", established, "--timeout=2s", "--filename", &file])
        })?;
    }
    Ok(())
}

const API_SERVICE: &str = "apiservice/v1beta1.metrics.k8s.io";

fn api_service() -> Result<PathBuf, Box<dyn Error>> {
    Ok(METRICS_SERVER
        .sources()?
        .join("manifests/base/apiservice.yaml"))
}

/// The Service that the APIService names; what answers for it runs on the host.
fn service_of_metrics_server() -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: metrics-server, namespace: kube-system}}
spec: {{ports: [{{name: https, port: 443, targetPort: {METRICS_SERVER_PORT}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: metrics-server, namespace: kube-system, labels: {{kubernetes.io/service-name: metrics-server}}}}
addressType: IPv4
endpoints: [{{addresses: [{NODE_ADDRESS}], conditions: {{ready: true}}}}]
ports: [{{name: https, port: {METRICS_SERVER_PORT}, protocol: TCP}}]
"
    )
}

/// KEDA's metrics adapter, which is not there, would show these to its operator.
fn write_keda_certificates() -> Result<(), Box<dyn Error>> {
    let folder = keda_certificates();
    fs::create_dir_all(&folder)?;
    for (from, to) in [
        ("ca.crt", "ca.crt"),
        ("keda.crt", "tls.crt"),
        ("keda.key", "tls.key"),
    ] {
        fs::copy(key(from), folder.join(to))?;
    }
    Ok(())
}

fn keda_certificates() -> PathBuf {
    layout::state().join("keda-certificates")
}

/// KEDA behind `env`.
pub(super) fn keda(program: &Path) -> Vec<String> {
    vec![
        "WATCH_NAMESPACE=".into(),
        format!("KEDA_CLUSTER_OBJECT_NAMESPACE={KEDA_NAMESPACE}"),
        program.display().to_string(),
        kubeconfig_flag("admin"),
        "--leader-elect=false".into(),
        "--enable-webhook-patching=false".into(),
        "--enable-apiservice-patching=false".into(),
        format!("--cert-dir={}", keda_certificates().display()),
        format!("--metrics-bind-address={NODE_ADDRESS}:{KEDA_METRICS_PORT}"),
        format!("--health-probe-bind-address={NODE_ADDRESS}:{KEDA_HEALTH_PORT}"),
        format!("--metrics-service-bind-address={NODE_ADDRESS}:{KEDA_GRPC_PORT}"),
    ]
}

pub(super) fn rollouts() -> Vec<String> {
    vec![
        kubeconfig_flag("admin"),
        "--leader-elect=false".into(),
        format!("--metricsPort={ROLLOUTS_METRICS_PORT}"),
        format!("--healthzPort={ROLLOUTS_HEALTH_PORT}"),
    ]
}

/// Traefik behind `env`, with its own times.
pub(super) fn traefik(program: &Path) -> Vec<String> {
    let kubeconfig = certificates::kubeconfig_of("admin");
    vec![
        format!("KUBECONFIG={}", kubeconfig.display()),
        program.display().to_string(),
        "--providers.kubernetesingress=true".into(),
        "--providers.kubernetescrd=true".into(),
        // Traefik's active health checks are for these only.
        "--providers.kubernetescrd.allowexternalnameservices=true".into(),
        format!("--entrypoints.web.address={NODE_ADDRESS}:{TRAEFIK_PORT}"),
        format!("--entrypoints.traefik.address={NODE_ADDRESS}:{TRAEFIK_ADMIN_PORT}"),
        "--ping=true".into(),
        "--api.insecure=true".into(),
        "--api.dashboard=false".into(),
        "--global.checknewversion=false".into(),
        "--global.sendanonymoususage=false".into(),
    ]
}

/// As often as metrics-server lets itself be asked to read the kubelets, so that tests need not wait long.
pub(super) fn metrics_server() -> Vec<String> {
    let kubeconfig = certificates::kubeconfig_of("admin").display().to_string();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--bind-address={NODE_ADDRESS}"),
        format!("--secure-port={METRICS_SERVER_PORT}"),
        format!("--cert-dir={}", in_state("metrics-server")),
        "--kubelet-insecure-tls".into(),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--kubelet-request-timeout=5s".into(),
        "--metric-resolution=10s".into(),
    ]
}
