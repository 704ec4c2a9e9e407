//! Images without Docker: `cargo xtask image` and the images of the test node.

mod archive;
mod programs;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use archive::Image;
pub(crate) use archive::{compressed, pack};
pub(crate) use programs::{COMMAND_LINE_FEATURES, ELASTI_FEATURES, command_line, host};

use crate::kubernetes::go_programs;
use crate::kubernetes::nodes::Node;
use crate::paths;

pub(crate) const USAGE: &str = "  image [--load]  make the image of elasti as a tar; --load gives it to the node of this machine
";

/// The image of elasti, under the name that tests use.
const ELASTI: &str = "docker.io/local/elasti:dev";
/// The sample app of the end-to-end tests, which the simulated cluster runs too.
pub(crate) const SAMPLE_APP: &str = "docker.io/local/sample-app:1";
/// The sample app of churn and cold starts, which is not ours.
pub(crate) const HTTPBIN: &str = "docker.io/local/go-httpbin:v2.26.0";
/// The image of the process that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "docker.io/local/pause:1";

/// Where programs look for certificate authorities.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// What an image may weigh.
const MOST_BYTES: u64 = 20_000_000;

/// Does what the words ask for; `None` where they ask for nothing known.
pub(crate) fn run(words: &[&str]) -> Option<Result<(), Box<dyn Error>>> {
    Some(match words {
        [] => elasti().map(|_| ()),
        ["--load"] => elasti().and_then(|tar| import(&tar)),
        _ => return None,
    })
}

/// Builds elasti and its image under the name that tests use.
pub(crate) fn elasti() -> Result<PathBuf, Box<dyn Error>> {
    elasti_as(ELASTI, &folder())
}

/// Builds elasti and its image under a name, in a folder; a fat one is an error.
pub(crate) fn elasti_as(reference: &str, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    // Triggers may ask a Prometheus over https.
    let authorities = [(AUTHORITIES, programs::authorities()?)];
    let image = Image {
        reference,
        program: &programs::elasti()?,
        path: "elasti",
        links: &[],
        files: &authorities,
    };
    let tar = image.write(folder)?;
    let bytes = fs::metadata(&tar)?.len();
    println!("{}: {reference}, {bytes} bytes", tar.display());
    if bytes > MOST_BYTES {
        return Err(format!("the image has more than {MOST_BYTES} bytes").into());
    }
    Ok(tar)
}

/// The images that every test node has: pause and the sample apps.
pub(crate) fn of_the_node() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    Ok(vec![
        write("pause", PAUSE, &programs::pause()?, &[])?,
        write("go-httpbin", HTTPBIN, &go_programs::HTTPBIN.path()?, &[])?,
    ])
}

/// The sample app of the end-to-end tests; by its other name it stands in for KubeElasti's operator, which is known by
/// what its container runs.
pub(crate) fn sample_app() -> Result<PathBuf, Box<dyn Error>> {
    let links = ["manager"];
    write("sample-app", SAMPLE_APP, &programs::sample_app()?, &links)
}

fn write(
    name: &str,
    reference: &str,
    program: &Path,
    links: &[&str],
) -> Result<PathBuf, Box<dyn Error>> {
    let image = Image {
        reference,
        program,
        path: name,
        links,
        files: &[],
    };
    image.write(&folder())
}

/// Where the image of elasti is once it is built.
pub(crate) fn elasti_tar() -> PathBuf {
    folder().join("elasti.tar")
}

fn folder() -> PathBuf {
    paths::target().join("image")
}

/// Gives an image to every node of this machine's cluster.
pub(crate) fn import(tar: &Path) -> Result<(), Box<dyn Error>> {
    let nodes = Node::all();
    nodes.into_iter().try_for_each(|node| import_to(node, tar))
}

fn import_to(node: Node, tar: &Path) -> Result<(), Box<dyn Error>> {
    let output = Command::new("ctr")
        .arg("--address")
        .arg(node.containerd_socket())
        .args(["--namespace", "k8s.io", "images", "import"])
        .arg(tar)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("cannot import {}: {said}", tar.display()).into())
}
