//! The Go programs of the test node, built once from Go modules and kept by version.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::paths::{self, root};

/// One program, how to build it and by which names it can be called.
pub(crate) struct GoProgram {
    name: &'static str,
    version: &'static str,
    source: Source,
    link: &'static str,
}

enum Source {
    /// A small main of ours, with its go.mod and go.sum, in a folder of the repository.
    Folder(&'static str),
    /// A main package of the module itself.
    Package(&'static str),
    /// A main package of a module that replaces others, which only holds where it is the main module.
    Module {
        module: &'static str,
        package: &'static str,
        missing: Option<Missing>,
    },
}

/// A module that another one replaces by a folder of its repository, and that it is published without.
struct Missing {
    /// The folder, as its go.mod names it.
    folder: &'static str,
    /// What stands for it, in our repository.
    stand_in: &'static str,
}

/// Control plane, node and `kubectl` in one binary that looks at the name it is called by.
pub(crate) const KUBE: GoProgram = GoProgram {
    name: "kube",
    version: "v1.34.4",
    source: Source::Folder("xtask/go/kube"),
    link: "-X k8s.io/component-base/version.gitVersion=v1.34.4 \
           -X k8s.io/component-base/version.gitMajor=1 \
           -X k8s.io/component-base/version.gitMinor=34",
};

pub(crate) const ETCD: GoProgram = GoProgram {
    name: "etcd",
    version: "v3.6.16",
    source: Source::Folder("xtask/go/etcd"),
    link: "",
};

pub(crate) const COREDNS: GoProgram = GoProgram {
    name: "coredns",
    version: "v1.12.4",
    source: Source::Folder("xtask/go/coredns"),
    link: "",
};

pub(crate) const HELM: GoProgram = GoProgram {
    name: "helm",
    version: "v3.19.0",
    source: Source::Package("helm.sh/helm/v3/cmd/helm"),
    // Without a cluster to ask, charts are rendered for this version.
    link: "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 \
           -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34",
};

/// A sample app with every HTTP shape.
pub(crate) const HTTPBIN: GoProgram = GoProgram {
    name: "go-httpbin",
    version: "v2.26.0",
    source: Source::Package("github.com/mccutchen/go-httpbin/v2/cmd/go-httpbin"),
    link: "",
};

/// Finds mistakes in the workflows of `.github`.
pub(crate) const ACTIONLINT: GoProgram = GoProgram {
    name: "actionlint",
    version: "v1.7.12",
    source: Source::Package("github.com/rhysd/actionlint/cmd/actionlint"),
    link: "",
};

/// The Lua interpreter that Argo CD has.
pub(crate) const GLUA: GoProgram = GoProgram {
    name: "glua",
    version: "v1.1.1",
    source: Source::Package("github.com/yuin/gopher-lua/cmd/glua"),
    link: "",
};

/// KEDA's operator.
pub(crate) const KEDA: GoProgram = GoProgram {
    name: "keda",
    version: "v2.21.0",
    source: Source::Module {
        module: "github.com/kedacore/keda/v2",
        package: "./cmd/operator",
        missing: None,
    },
    link: "",
};

/// The controller of Argo Rollouts.
pub(crate) const ROLLOUTS: GoProgram = GoProgram {
    name: "argo-rollouts",
    version: "v1.10.1",
    source: Source::Module {
        module: "github.com/argoproj/argo-rollouts",
        package: "./cmd/rollouts-controller",
        missing: None,
    },
    link: "",
};

/// What an HPA reads the use of CPU and memory from.
pub(crate) const METRICS_SERVER: GoProgram = GoProgram {
    name: "metrics-server",
    version: "v0.9.0",
    source: Source::Module {
        module: "sigs.k8s.io/metrics-server",
        package: "./cmd/metrics-server",
        missing: None,
    },
    link: "",
};

/// An ingress controller; its module has no pages of its dashboard, which only embeds what is there.
pub(crate) const TRAEFIK: GoProgram = GoProgram {
    name: "traefik",
    version: "v3.7.10",
    source: Source::Module {
        module: "github.com/traefik/traefik/v3",
        package: "./cmd/traefik",
        missing: Some(Missing {
            folder: "./pkg/config/dynamic/ext",
            stand_in: "xtask/go/traefik/ext",
        }),
    },
    link: "",
};

/// Everything that a check needs.
pub(crate) const ALL: [&GoProgram; 7] =
    [&KUBE, &ETCD, &COREDNS, &HELM, &HTTPBIN, &ACTIONLINT, &GLUA];

/// What `up` starts.
pub(crate) const OF_THE_NODE: [&GoProgram; 3] = [&KUBE, &ETCD, &COREDNS];

/// The names by which the one Kubernetes binary is called.
const KUBE_NAMES: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
];

impl Missing {
    /// The go.mod of the sources with what stands for the folder, and its go.sum beside it, in another folder.
    fn completed(&self, sources: &Path, to: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let stand_in = root().join(self.stand_in).display().to_string();
        let module = fs::read_to_string(sources.join("go.mod"))?;
        let path = to.join("go.mod");
        fs::write(&path, module.replace(self.folder, &stand_in))?;
        // Not a copy of the file: sources are read-only.
        fs::write(to.join("go.sum"), fs::read(sources.join("go.sum"))?)?;
        Ok(path)
    }
}

impl GoProgram {
    /// The program's path; it is built first where the cache does not have it.
    pub(crate) fn path(&self) -> Result<PathBuf, Box<dyn Error>> {
        let folder = paths::cache()?.join(self.key()?);
        let program = folder.join(self.name);
        if !program.exists() {
            // Another process may be building it: the second waits and finds it there.
            let lock = paths::lock(&folder)?;
            if !program.exists() {
                self.build(&folder)?;
            }
            drop(lock);
        }
        Ok(program)
    }

    /// The sources of its module, read-only, with the manifests that belong to this version.
    pub(crate) fn sources(&self) -> Result<PathBuf, Box<dyn Error>> {
        let Source::Module { module, .. } = self.source else {
            return Err(format!("{} is not built from a module alone", self.name).into());
        };
        let output = Command::new("go")
            .args(["mod", "download", "-json"])
            .arg(format!("{module}@{}", self.version))
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot run `go` to download {module}: {error}"))?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        match said.get("Dir").and_then(serde_json::Value::as_str) {
            Some(folder) => Ok(PathBuf::from(folder)),
            None => Err(format!("cannot download {module}: {said}").into()),
        }
    }

    /// The folder's name in the cache: a change of version, flags or our main is another program.
    fn key(&self) -> Result<String, Box<dyn Error>> {
        let mut digest = Sha256::new();
        for file in self.own_files() {
            digest.update(fs::read(file)?);
        }
        digest.update(self.link);
        let short: String = digest
            .finalize()
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(format!("{}-{}-{short}", self.name, self.version))
    }

    /// The files of our repository that it is built from.
    fn own_files(&self) -> Vec<PathBuf> {
        let (folder, names) = match &self.source {
            Source::Folder(folder) => (folder, &["main.go", "go.mod", "go.sum"][..]),
            Source::Module {
                missing: Some(missing),
                ..
            } => (&missing.stand_in, &["ext.go", "go.mod"][..]),
            Source::Module { .. } | Source::Package(_) => return Vec::new(),
        };
        let path = |name| root().join(folder).join(name);
        names.iter().map(path).collect()
    }

    fn build(&self, folder: &Path) -> Result<(), Box<dyn Error>> {
        println!(
            "building {} {} from Go modules (minutes the first time)",
            self.name, self.version
        );
        let start = Instant::now();
        // A build that is cut short must not look like a finished one.
        let unfinished = folder.with_added_extension(format!("unfinished-{}", std::process::id()));
        fs::create_dir_all(&unfinished)?;
        let outcome = self.compile(&unfinished);
        if let Err(error) = outcome {
            fs::remove_dir_all(&unfinished)?;
            return Err(error);
        }
        if self.name == KUBE.name {
            for name in KUBE_NAMES {
                std::os::unix::fs::symlink(self.name, unfinished.join(name))?;
            }
        }
        fs::rename(&unfinished, folder)?;
        println!(
            "built {} in {:.0} s",
            self.name,
            start.elapsed().as_secs_f32()
        );
        Ok(())
    }

    fn compile(&self, folder: &Path) -> Result<(), Box<dyn Error>> {
        let link = format!("-s -w {}", self.link);
        let mut go = Command::new("go");
        go.env("CGO_ENABLED", "0").env("GOFLAGS", "-buildvcs=false");
        match &self.source {
            Source::Folder(source) => go
                .current_dir(root().join(source))
                .args(["build", "-trimpath", "-ldflags", &link, "-o"])
                .arg(folder.join(self.name))
                .arg("."),
            Source::Package(package) => go
                .env("GOBIN", folder)
                .args(["install", "-trimpath", "-ldflags", &link])
                .arg(format!("{package}@{}", self.version)),
            Source::Module {
                package, missing, ..
            } => {
                let sources = self.sources()?;
                go.current_dir(&sources)
                    .args(["build", "-trimpath", "-ldflags", &link, "-o"])
                    .arg(folder.join(self.name));
                if let Some(missing) = missing {
                    go.arg("-modfile").arg(missing.completed(&sources, folder)?);
                }
                go.arg(package)
            }
        };
        match go.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("building {} ended with {status}", self.name).into()),
            Err(error) => Err(format!("cannot run `go` to build {}: {error}", self.name).into()),
        }
    }
}

/// Whether Go is there.
pub(crate) fn can_build() -> bool {
    let go = Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .status();
    go.is_ok_and(|status| status.success())
}

/// The path of one Kubernetes program.
pub(crate) fn kube(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    Ok(KUBE.path()?.with_file_name(name))
}
