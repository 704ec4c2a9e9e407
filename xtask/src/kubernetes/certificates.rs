//! Keys, certificates and tokens of the cluster, made anew each time.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::layout::{self, API_SERVER, API_SERVICE_ADDRESS, CLUSTER_DOMAIN, NODE_ADDRESS};
use super::nodes::Node;

/// Who may talk to the API server besides the kubelets: file name, user, group.
const USERS: [(&str, &str, &str); 5] = [
    ("admin", "admin", "system:masters"),
    (
        "kube-controller-manager",
        "system:kube-controller-manager",
        "",
    ),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kube-proxy", "system:kube-proxy", ""),
    // DNS and Prometheus on the host only look.
    ("onlooker", "onlooker", ""),
];

/// The name by which aggregated API servers know the API server.
pub(crate) const FRONT_PROXY: &str = "front-proxy";

/// The folder of keys and certificates.
pub(crate) fn folder() -> PathBuf {
    layout::state().join("keys")
}

/// The kubeconfig of one user.
pub(crate) fn kubeconfig_of(user: &str) -> PathBuf {
    layout::state().join(format!("{user}.kubeconfig"))
}

/// Makes all of it.
pub(crate) fn create() -> Result<(), Box<dyn Error>> {
    let folder = folder();
    fs::create_dir_all(&folder)?;
    openssl(&[
        "genrsa -out account.key 2048",
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 365 -subj /CN=elasti-kubernetes",
    ])?;
    let names = format!(
        "subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,\
         DNS:kubernetes.default.svc.{CLUSTER_DOMAIN},DNS:localhost,\
         IP:{NODE_ADDRESS},IP:{API_SERVICE_ADDRESS},IP:127.0.0.1"
    );
    signed("apiserver", "/CN=kube-apiserver", &names)?;
    let usage = "extendedKeyUsage=clientAuth";
    signed(
        "kubelet-client",
        "/O=system:masters/CN=kube-apiserver",
        usage,
    )?;
    signed("front-proxy", &format!("/CN={FRONT_PROXY}"), usage)?;
    signed(
        "keda",
        "/CN=keda-operator",
        "subjectAltName=DNS:keda-operator",
    )?;
    write_users(&folder)
}

/// A key and a certificate of our authority.
fn signed(name: &str, subject: &str, extension: &str) -> Result<(), Box<dyn Error>> {
    fs::write(folder().join(format!("{name}.ext")), extension)?;
    openssl(&[
        &format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj {subject}"),
        &format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 \
             -extfile {name}.ext -out {name}.crt"
        ),
    ])
}

fn openssl(commands: &[&str]) -> Result<(), Box<dyn Error>> {
    for command in commands {
        let output = Command::new("openssl")
            .args(command.split_whitespace())
            .current_dir(folder())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run openssl: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("openssl {command}: {said}").into());
        }
    }
    Ok(())
}

/// One random token a user, in the API server's list and in a kubeconfig.
fn write_users(folder: &Path) -> Result<(), Box<dyn Error>> {
    let own = |(name, user, group): (&str, &str, &str)| (name.into(), user.into(), group.into());
    let kubelet = |node: &Node| {
        let user = format!("system:node:{}", node.name());
        (node.suffixed("kubelet"), user, "system:nodes".to_owned())
    };
    let nodes = Node::all();
    let users: Vec<(String, String, String)> = USERS
        .into_iter()
        .map(own)
        .chain(nodes.iter().map(kubelet))
        .collect();
    let mut list = String::new();
    for (name, user, group) in users {
        let token = random_token()?;
        // The list takes an empty group for a group without a name.
        let group = if group.is_empty() {
            String::new()
        } else {
            format!(",{group}")
        };
        list.push_str(&format!("{token},{user},{user}{group}\n"));
        fs::write(kubeconfig_of(&name), kubeconfig(&token))?;
    }
    fs::write(folder.join("tokens.csv"), list)?;
    Ok(())
}

fn random_token() -> Result<String, Box<dyn Error>> {
    let output = Command::new("openssl")
        .args(["rand", "-hex", "24"])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn kubeconfig(token: &str) -> String {
    let authority = folder().join("ca.crt");
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: elasti\n\
         contexts: [{{name: elasti, context: {{cluster: elasti, user: elasti}}}}]\n\
         clusters: [{{name: elasti, cluster: {{server: '{API_SERVER}', certificate-authority: {}}}}}]\n\
         users: [{{name: elasti, user: {{token: {token}}}}}]\n",
        authority.display()
    )
}
