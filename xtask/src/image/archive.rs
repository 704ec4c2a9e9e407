//! One static program as an image: an OCI layout that `docker load` reads too, in one tar.
//! It never puts in more than it is given: no shell, no library, no user but a number.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A user without name and without permissions.
const USER: &str = "65532:65532";

/// A program that becomes an image.
pub(crate) struct Image<'a> {
    /// The full name with its tag.
    pub(crate) reference: &'a str,
    pub(crate) program: &'a Path,
    /// The program's name in the image's root folder.
    pub(crate) path: &'a str,
    /// Other names of the program in that folder.
    pub(crate) links: &'a [&'a str],
    /// Other files: where they are in the image, and what they hold.
    pub(crate) files: &'a [(&'a str, Vec<u8>)],
}

/// Content that is named by its own hash.
struct Blob {
    digest: String,
    size: usize,
}

impl Image<'_> {
    /// Writes `<folder>/<path>.tar`; the same program gives the same bytes.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let staging = folder.join(self.path);
        if staging.exists() {
            fs::remove_dir_all(&staging)?;
        }
        let blobs = staging.join("layout/blobs/sha256");
        fs::create_dir_all(&blobs)?;
        let layer = self.layer(&staging)?;
        let unpacked = digest(&fs::read(&layer)?);
        let layer = store(&blobs, &compressed(&layer)?)?;
        let config = store(&blobs, &bytes(&self.config(&unpacked))?)?;
        let manifest = store(&blobs, &bytes(&manifest(&config, &layer))?)?;
        let layout = staging.join("layout");
        for (name, value) in [
            ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
            ("index.json", self.index(&manifest)),
            ("manifest.json", self.docker_manifest(&config, &layer)),
        ] {
            fs::write(layout.join(name), bytes(&value)?)?;
        }
        let tar = folder.join(format!("{}.tar", self.path));
        pack(&layout, &tar)?;
        fs::remove_dir_all(&staging)?;
        Ok(tar)
    }

    /// A tar of the image's files.
    fn layer(&self, staging: &Path) -> Result<PathBuf, Box<dyn Error>> {
        let files = staging.join("files");
        fs::create_dir_all(&files)?;
        fs::copy(self.program, files.join(self.path))?;
        for link in self.links {
            std::os::unix::fs::symlink(self.path, files.join(link))?;
        }
        for (path, content) in self.files {
            let path = files.join(path);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, content)?;
        }
        let tar = staging.join("layer.tar");
        pack(&files, &tar)?;
        Ok(tar)
    }

    /// A layer is known by the hash of what it holds, however it is compressed.
    fn config(&self, unpacked: &str) -> Value {
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": [format!("/{}", self.path)],
                "User": USER,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{unpacked}")]},
        })
    }

    /// The name twice: one annotation is OCI's, the other is what containerd reads.
    fn index(&self, manifest: &Blob) -> Value {
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", manifest);
        if let Some(entry) = entry.as_object_mut() {
            entry.insert(
                "annotations".into(),
                json!({
                    "io.containerd.image.name": self.reference,
                    "org.opencontainers.image.ref.name": self.reference,
                }),
            );
        }
        json!({"schemaVersion": 2, "manifests": [entry]})
    }

    fn docker_manifest(&self, config: &Blob, layer: &Blob) -> Value {
        json!([{
            "Config": format!("blobs/sha256/{}", config.digest),
            "RepoTags": [self.reference],
            "Layers": [format!("blobs/sha256/{}", layer.digest)],
        }])
    }
}

fn manifest(config: &Blob, layer: &Blob) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", layer)],
    })
}

fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({
        "mediaType": media_type,
        "digest": format!("sha256:{}", blob.digest),
        "size": blob.size,
    })
}

fn bytes(value: &Value) -> Result<Vec<u8>, Box<dyn Error>> {
    Ok(serde_json::to_vec(value)?)
}

fn digest(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file without its name and time, compressed as registries keep it.
pub(crate) fn compressed(file: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let output = Command::new("gzip")
        .args(["--no-name", "--best", "--stdout"])
        .arg(file)
        .output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("gzip of {}: {said}", file.display()).into())
}

fn store(blobs: &Path, content: &[u8]) -> Result<Blob, Box<dyn Error>> {
    let digest = digest(content);
    fs::write(blobs.join(&digest), content)?;
    Ok(Blob {
        digest,
        size: content.len(),
    })
}

/// A tar of a folder's content without any trace of when and by whom it was made.
pub(crate) fn pack(folder: &Path, tar: &Path) -> Result<(), Box<dyn Error>> {
    let output = Command::new("tar")
        .args(["--create", "--sort=name", "--format=ustar"])
        .args(["--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"])
        .args(["--mode=u=rwX,go=rX", "--file"])
        .arg(tar)
        .arg("--directory")
        .arg(folder)
        .args(entries(folder)?)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("tar of {}: {said}", folder.display()).into())
}

fn entries(folder: &Path) -> Result<Vec<std::ffi::OsString>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name());
    }
    names.sort();
    Ok(names)
}

/// The machine's kind in the words of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Image;

    #[test]
    fn the_same_program_gives_the_same_image() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "not much of a program").unwrap();
        let image = Image {
            reference: "docker.io/local/sample:1",
            program: &program,
            path: "sample",
            links: &["also"],
            files: &[("etc/sample", b"a file".to_vec())],
        };
        let first = fs::read(image.write(&folder.path().join("a")).unwrap()).unwrap();
        let second = fs::read(image.write(&folder.path().join("b")).unwrap()).unwrap();
        assert!(!first.is_empty());
        assert_eq!(first, second);
    }
}
