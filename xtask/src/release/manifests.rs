//! How package managers of users find the command line: krew's manifest and Homebrew's formula.

use std::error::Error;

use serde_json::{Value, json};

use super::binary::PROGRAM;
use super::{Archive, VERSION};

/// krew shows it in a list of one line each.
const SHORT: &str = "Scale idle Services to zero, and see why";
const LONG: &str = "Shows which Services sleep, why one is awake and when it will sleep; wakes, puts to sleep and \
                    pauses them; checks manifests and the installation. It needs Elasti in the cluster.";

/// Where things are.
pub(super) struct Links<'a> {
    pub(super) homepage: &'a str,
    pub(super) downloads: &'a str,
}

impl Links<'_> {
    fn download(&self, archive: &Archive) -> String {
        format!("{}/{}", self.downloads, archive.name)
    }
}

/// krew calls the program by the plugin's name: `kubectl elasti`.
pub(super) fn krew(links: &Links<'_>, archives: &[Archive]) -> Result<String, Box<dyn Error>> {
    let platforms: Vec<Value> = archives
        .iter()
        .map(|archive| {
            json!({
                "selector": {"matchLabels": {"os": archive.platform.os, "arch": archive.platform.arch}},
                "uri": links.download(archive),
                "sha256": archive.sha256,
                "bin": PROGRAM,
            })
        })
        .collect();
    Ok(serde_saphyr::to_string(&json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "elasti"},
        "spec": {
            "version": format!("v{VERSION}"),
            "homepage": links.homepage,
            "shortDescription": SHORT,
            "description": LONG,
            "platforms": platforms,
        },
    }))?)
}

/// Only Linux, as the archives are. The second name makes it `kubectl elasti` here, too.
pub(super) fn homebrew(links: &Links<'_>, archives: &[Archive]) -> Result<String, Box<dyn Error>> {
    let mut sources = String::new();
    for archive in archives {
        let processor = match (archive.platform.os.as_str(), archive.platform.arch.as_str()) {
            ("linux", "amd64") => "intel",
            ("linux", "arm64") => "arm",
            (os, arch) => return Err(format!("Homebrew has no name for {os} {arch}").into()),
        };
        let url = links.download(archive);
        let sha256 = &archive.sha256;
        sources.push_str(&format!(
            "\n  on_{processor} do\n    url \"{url}\"\n    sha256 \"{sha256}\"\n  end\n"
        ));
    }
    let homepage = links.homepage;
    Ok(format!(
        r##"class Elasti < Formula
  desc "{SHORT}"
  homepage "{homepage}"
  version "{VERSION}"
  license "Apache-2.0"

  depends_on :linux
{sources}
  def install
    bin.install "{PROGRAM}"
    bin.install_symlink "{PROGRAM}" => "kubectl-{PROGRAM}"
    generate_completions_from_executable(bin/"{PROGRAM}", "completion")
    system bin/"{PROGRAM}", "man", "--folder", buildpath/"man1"
    man1.install Dir[buildpath/"man1/*"]
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/{PROGRAM} version --client")
  end
end
"##
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Links, SHORT, homebrew, krew};
    use crate::release::{Archive, Platform};

    const LINKS: Links<'_> = Links {
        homepage: "https://git.example.com/elasti",
        downloads: "https://git.example.com/elasti/releases/download/v1",
    };

    fn archives(of: &[&str]) -> Vec<Archive> {
        let archive = |arch: &&str| Archive {
            name: format!("elasti_1_linux_{arch}.tar.gz"),
            platform: Platform {
                os: "linux".to_owned(),
                arch: (*arch).to_owned(),
            },
            sha256: format!("sum-of-{arch}"),
        };
        of.iter().map(archive).collect()
    }

    #[test]
    fn krew_finds_an_archive_for_each_platform() {
        let text = krew(&LINKS, &archives(&["amd64", "arm64"])).unwrap();
        let manifest: Value = serde_saphyr::from_str(&text).unwrap();
        let platforms = manifest["spec"]["platforms"].as_array().unwrap();
        assert_eq!(platforms.len(), 2);
        assert_eq!(platforms[1]["selector"]["matchLabels"]["arch"], "arm64");
        assert_eq!(platforms[1]["sha256"], "sum-of-arm64");
        assert_eq!(
            platforms[1]["uri"],
            "https://git.example.com/elasti/releases/download/v1/elasti_1_linux_arm64.tar.gz"
        );
        // krew-index refuses longer ones.
        assert!(SHORT.len() <= 50, "{}", SHORT.len());
    }

    #[test]
    fn homebrew_has_one_source_for_each_processor() {
        let text = homebrew(&LINKS, &archives(&["amd64", "arm64"])).unwrap();
        for part in ["on_intel do", "on_arm do", "sum-of-amd64", "sum-of-arm64"] {
            assert_eq!(text.matches(part).count(), 1, "{part}");
        }
        assert!(homebrew(&LINKS, &archives(&["riscv64"])).is_err());
    }
}
