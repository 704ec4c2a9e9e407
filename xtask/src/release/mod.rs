//! The files of a release in one folder: `cargo xtask release`. The release workflow runs the same steps; nothing here
//! publishes anything.

mod binary;
mod changelog;
mod chart;
mod checksums;
mod image_name;
mod install;
mod manifests;
mod sbom;
mod verify;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use image_name::ImageName;

use crate::image;
use crate::paths::{self, root};

pub(crate) const USAGE: &str = "  release --dry-run [--image NAME] [--repository URL]
                  make every file of a release for this machine's architecture in target/release-artifacts, check
                  them against each other, and publish nothing
  release build | assemble [--tag TAG] [--image NAME] [--repository URL] [--previous-index FILE]
                  the two halves of it, for the release workflow: `build` on a machine of each architecture, then
                  `assemble` once with all their files in the folder; TAG must be the version in Cargo.toml, and FILE
                  is the chart index of the last release, if there was one
  release install
                  install what `--dry-run` made, and nothing else, on a fresh cluster of this machine (as root); a
                  service sleeps and is woken; what is typed goes to target/release-staging/transcript.txt
";

/// The version of the workspace, which xtask has too.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where the links of a dry run lead: nowhere.
const NO_REPOSITORY: &str = "https://git.example.com/elasti";

/// What a release is made for.
#[derive(Debug, PartialEq)]
struct Options {
    image: ImageName,
    /// The repository's page, without a slash at the end.
    repository: String,
    /// With a tag it is a release, and the change log must have a section for it.
    tag: Option<String>,
    /// The chart index of the last release. The first release has none before it.
    previous_index: Option<PathBuf>,
}

impl Options {
    /// Parses the flags; `None` where one is not known.
    fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self {
            image: ImageName::parse(ImageName::DEFAULT)?,
            repository: NO_REPOSITORY.to_owned(),
            tag: None,
            previous_index: None,
        };
        let mut pairs = arguments.chunks_exact(2);
        for pair in &mut pairs {
            match pair {
                ["--image", name] => options.image = ImageName::parse(name)?,
                ["--repository", url] => {
                    options.repository = url.trim_end_matches('/').to_owned();
                }
                ["--tag", tag] => options.tag = Some((*tag).to_owned()),
                ["--previous-index", file] => options.previous_index = Some(root().join(file)),
                _ => return None,
            }
        }
        pairs.remainder().is_empty().then_some(options)
    }

    /// Where users download the files from.
    fn downloads(&self) -> String {
        format!("{}/releases/download/v{VERSION}", self.repository)
    }

    /// A tag that is not the version of the code would release something else than it says.
    fn check_tag(&self) -> Result<(), Box<dyn Error>> {
        match &self.tag {
            Some(tag) if *tag != format!("v{VERSION}") => {
                Err(format!("the tag is {tag}, and Cargo.toml has the version {VERSION}").into())
            }
            _ => Ok(()),
        }
    }
}

/// Does what the words ask for; `None` where they ask for nothing known.
pub(crate) fn run(words: &[&str]) -> Option<Result<(), Box<dyn Error>>> {
    let (step, flags) = words.split_first()?;
    let options = Options::parse(flags)?;
    Some(match *step {
        "--dry-run" if options.tag.is_none() => dry_run(&options),
        "build" => build(&options),
        "install" if flags.is_empty() => install::run(),
        "assemble" => assemble(&options),
        _ => return None,
    })
}

/// Where the files of a release lie.
fn folder() -> PathBuf {
    paths::target().join("release-artifacts")
}

fn dry_run(options: &Options) -> Result<(), Box<dyn Error>> {
    let folder = folder();
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    build(options)?;
    assemble(options)?;
    println!("{}:", folder.display());
    for name in files(&folder)? {
        let bytes = fs::metadata(folder.join(&name))?.len();
        println!("{bytes:>12} {name}");
    }
    println!("nothing was published");
    Ok(())
}

/// What depends on the architecture: the command line, the image, and what is in each.
fn build(options: &Options) -> Result<(), Box<dyn Error>> {
    options.check_tag()?;
    let folder = folder();
    fs::create_dir_all(&folder)?;
    let platform = Platform::of_this_machine()?;
    for (file, product) in [
        (platform.sbom(), sbom::Product::CommandLine),
        (platform.image_sbom(), sbom::Product::Image),
    ] {
        fs::write(folder.join(file), sbom::generate(product)?)?;
    }
    // Both programs are built to the same path, so each is taken before the next one is built.
    let staging = paths::target().join("release-staging");
    let tar = image::elasti_as(&options.image.reference(VERSION), &staging)?;
    fs::rename(tar, folder.join(platform.image_archive()))?;
    binary::write_archive(&staging, &folder.join(platform.archive()))
}

/// What is made once, from the files of every architecture that are in the folder.
fn assemble(options: &Options) -> Result<(), Box<dyn Error>> {
    options.check_tag()?;
    let folder = folder();
    let archives = archives(&folder)?;
    if archives.is_empty() {
        let folder = folder.display();
        return Err(format!("no archive in {folder}; `cargo xtask release build` first").into());
    }
    chart::package(&options.image, &folder)?;
    let previous = options.previous_index.as_deref();
    chart::index(&folder, &options.downloads(), previous)?;
    let links = manifests::Links {
        homepage: &options.repository,
        downloads: &options.downloads(),
    };
    fs::write(
        folder.join("elasti.yaml"),
        manifests::krew(&links, &archives)?,
    )?;
    fs::write(
        folder.join("elasti.rb"),
        manifests::homebrew(&links, &archives)?,
    )?;
    let text = fs::read_to_string(root().join("CHANGELOG.md"))?;
    let notes = changelog::notes(&text, options.tag.as_ref().map(|_| VERSION))?;
    fs::write(folder.join("NOTES.md"), notes)?;
    checksums::write(&folder)?;
    verify::folder(&folder, &options.image)
}

/// An operating system and an architecture, in the words of images, krew and Go.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Platform {
    os: String,
    arch: String,
}

impl Platform {
    fn of_this_machine() -> Result<Self, Box<dyn Error>> {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => return Err(format!("there are no releases for {other}").into()),
        };
        Ok(Self {
            os: "linux".to_owned(),
            arch: arch.to_owned(),
        })
    }

    fn named(&self, product: &str, end: &str) -> String {
        format!("{product}_{VERSION}_{}_{}.{end}", self.os, self.arch)
    }

    fn archive(&self) -> String {
        self.named("elasti", "tar.gz")
    }

    fn image_archive(&self) -> String {
        self.named("elasti-image", "tar")
    }

    fn sbom(&self) -> String {
        self.named("elasti", "cdx.json")
    }

    fn image_sbom(&self) -> String {
        self.named("elasti-image", "cdx.json")
    }

    /// The platform of an archive of the command line.
    fn of_archive(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(&format!("elasti_{VERSION}_"))?;
        let (os, arch) = rest.strip_suffix(".tar.gz")?.split_once('_')?;
        Some(Self {
            os: os.to_owned(),
            arch: arch.to_owned(),
        })
    }
}

/// An archive of the command line that is in the folder.
struct Archive {
    name: String,
    platform: Platform,
    sha256: String,
}

fn archives(folder: &Path) -> Result<Vec<Archive>, Box<dyn Error>> {
    let mut found = Vec::new();
    for name in files(folder)? {
        if let Some(platform) = Platform::of_archive(&name) {
            let sha256 = checksums::of_file(&folder.join(&name))?;
            found.push(Archive {
                name,
                platform,
                sha256,
            });
        }
    }
    Ok(found)
}

/// The names of the files in a folder, sorted.
fn files(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    if !folder.exists() {
        return Ok(names);
    }
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Options, Platform, VERSION};
    use crate::paths::root;

    #[test]
    fn a_release_is_only_made_for_the_tag_of_its_version() {
        let with = |tag: &str| Options::parse(&["--tag", tag]).unwrap().check_tag();
        assert!(with(&format!("v{VERSION}")).is_ok());
        assert!(with(VERSION).is_err());
        assert!(with("v99.0.0").is_err());
    }

    #[test]
    fn unknown_and_incomplete_flags_are_refused() {
        assert_eq!(Options::parse(&["--image"]), None);
        assert_eq!(Options::parse(&["--push", "true"]), None);
    }

    #[test]
    fn the_platform_of_an_archive_is_in_its_name() {
        let platform = Platform::of_this_machine().unwrap();
        assert_eq!(
            Platform::of_archive(&platform.archive()),
            Some(platform.clone())
        );
        assert_eq!(Platform::of_archive(&platform.image_archive()), None);
        assert_eq!(
            Platform::of_archive("elasti_0.0.0_linux_amd64.tar.gz"),
            None
        );
    }

    #[test]
    fn chart_and_workspace_have_one_version() {
        let chart = fs::read_to_string(root().join("deploy/helm/elasti/Chart.yaml")).unwrap();
        for line in [
            format!("version: {VERSION}"),
            format!("appVersion: {VERSION}"),
        ] {
            assert!(chart.lines().any(|one| one == line), "no {line:?}");
        }
    }
}
