//! The files of a release on a fresh cluster, with nothing but kubectl and Helm beside them: `cargo xtask release install`.

use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::binary::PROGRAM;
use super::{Platform, VERSION, chart, checksums, folder};
use crate::churn::request;
use crate::churn::world::{self, NAMESPACE, RELEASE, Size};
use crate::kubernetes::{self, go_programs, layout};
use crate::{image, paths};

const COOLDOWN_SECONDS: u32 = 5;

/// Installs, lets a service sleep, wakes it by a request, and uninstalls. The cluster stays.
pub(super) fn run() -> Result<(), Box<dyn Error>> {
    let platform = Platform::of_this_machine()?;
    let folder = folder();
    if !folder.join(platform.archive()).exists() {
        return Err("no files of a release; `cargo xtask release --dry-run` first".into());
    }
    // What another test has installed or loaded must not help.
    kubernetes::run(&["down"]).ok_or("kubernetes down is not known")??;
    world::up("iptables", 1)?;
    let start = Instant::now();
    let user = User::new(folder.clone())?;
    user.types(&format!("sha256sum --check --quiet {}", checksums::NAME))?;
    // In place of a registry.
    image::import(&folder.join(platform.image_archive()))?;
    let bin = user.bin.display();
    user.types(&format!(
        "tar -xzf {} -C {bin} {PROGRAM}",
        platform.archive()
    ))?;
    let prometheus = layout::prometheus();
    user.types(&format!(
        "helm install {RELEASE} {} --namespace {RELEASE} --create-namespace --wait --timeout 180s \
         --set elastiController.manager.env.prometheusTriggerServerAddress={prometheus}",
        chart::package_name()
    ))?;
    println!("installed after {:.0} s", start.elapsed().as_secs_f32());
    sleep_and_wake(&user)?;
    println!("woken after {:.0} s", start.elapsed().as_secs_f32());
    world::remove()?;
    user.types(&format!(
        "helm uninstall {RELEASE} --namespace {RELEASE} --wait"
    ))
}

/// A service is put to sleep by its cooldown, and the first request gets the app's own answer.
fn sleep_and_wake(user: &User) -> Result<(), Box<dyn Error>> {
    let size = Size {
        targets: 1,
        ..Size::default()
    };
    world::create(size, COOLDOWN_SECONDS)?;
    let name = world::target(0);
    let said = user.output(&format!("{PROGRAM} version"))?;
    if !said.contains(VERSION) {
        return Err(format!("it has another version: {said}").into());
    }
    user.types(&format!("{PROGRAM} check"))?;
    user.types(&format!(
        "kubectl wait elastiservice/{name} --namespace {NAMESPACE} \
         --for=jsonpath='{{.status.phase}}'=Asleep --timeout=180s"
    ))?;
    let answer = request::send(world::address(&name)?, "first");
    if let Err(lost) = answer.result {
        return Err(format!("the first request: {lost}").into());
    }
    println!("answered after {:.1} s", answer.took.as_secs_f32());
    user.types(&format!("{PROGRAM} why {name} --namespace {NAMESPACE}"))
}

/// Someone with a shell in the folder of the release, and a PATH without anything of ours.
struct User {
    folder: PathBuf,
    bin: PathBuf,
}

impl User {
    fn new(folder: PathBuf) -> Result<Self, Box<dyn Error>> {
        let bin = paths::target().join("release-staging/bin");
        if bin.exists() {
            fs::remove_dir_all(&bin)?;
        }
        fs::create_dir_all(&bin)?;
        symlink(go_programs::kube("kubectl")?, bin.join("kubectl"))?;
        symlink(go_programs::HELM.path()?, bin.join("helm"))?;
        Ok(Self { folder, bin })
    }

    fn shell(&self, line: &str) -> Command {
        println!("$ {line}");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(&self.folder)
            .env("PATH", path_with(&self.bin))
            .env("KUBECONFIG", layout::kubeconfig());
        shell
    }

    /// Types a line; it must end with 0.
    fn types(&self, line: &str) -> Result<(), Box<dyn Error>> {
        match self.shell(line).status()? {
            status if status.success() => Ok(()),
            status => Err(format!("`{line}` ended with {status}").into()),
        }
    }

    fn output(&self, line: &str) -> Result<String, Box<dyn Error>> {
        let output = self.shell(line).output()?;
        let said = String::from_utf8(output.stdout)?;
        print!("{said}");
        Ok(said)
    }
}

fn path_with(bin: &Path) -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display())
}
