//! Whether the files of a release fit together, as a user would find out: the checksums, the program that is in the
//! archive, and the image that the packaged chart names.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::binary::PROGRAM;
use super::image_name::ImageName;
use super::{Platform, VERSION, chart, checksums};
use crate::kubernetes::go_programs;
use crate::paths;

pub(super) fn folder(folder: &Path, image: &ImageName) -> Result<(), Box<dyn Error>> {
    if fs::read_to_string(folder.join(checksums::NAME))? != checksums::list(folder)? {
        return Err("the checksums are not those of the files".into());
    }
    let platform = Platform::of_this_machine()?;
    // The other architectures' programs do not run here.
    if folder.join(platform.archive()).exists() {
        command_line(&folder.join(platform.archive()))?;
        archived_image(&folder.join(platform.image_archive()), image)?;
    }
    packaged_chart(&folder.join(chart::package_name()), image)
}

fn command_line(archive: &Path) -> Result<(), Box<dyn Error>> {
    let unpacked = paths::target().join("release-staging/unpacked");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    fs::create_dir_all(&unpacked)?;
    output(
        Command::new("tar")
            .args(["--extract", "--gzip", "--file"])
            .arg(archive)
            .arg("--directory")
            .arg(&unpacked),
    )?;
    let said = output(Command::new(unpacked.join(PROGRAM)).args(["version", "--client"]))?;
    fs::remove_dir_all(&unpacked)?;
    expect(
        said.contains(VERSION),
        "the program does not say its version",
        &said,
    )
}

fn archived_image(archive: &Path, image: &ImageName) -> Result<(), Box<dyn Error>> {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--to-stdout", "--file"])
        .arg(archive);
    let index = output(tar.arg("index.json"))?;
    let named = index.contains(&format!("\"{}\"", image.reference(VERSION)));
    expect(named, "the image archive has another name", &index)
}

/// Rendered from the package alone, with no value set.
fn packaged_chart(package: &Path, image: &ImageName) -> Result<(), Box<dyn Error>> {
    let mut helm = Command::new(go_programs::HELM.path()?);
    let objects = output(helm.args(["template", "elasti"]).arg(package))?;
    let images: Vec<&str> = objects
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("image: "))
        .map(|name| name.trim_matches('"'))
        .collect();
    let expected = image.in_pods(VERSION);
    let right = !images.is_empty() && images.iter().all(|name| *name == expected);
    let images = images.join(", ");
    expect(
        right,
        &format!("the chart's pods do not all run {expected}"),
        &images,
    )
}

fn expect(holds: bool, what: &str, found: &str) -> Result<(), Box<dyn Error>> {
    match holds {
        true => Ok(()),
        false => Err(format!("{what}: {found}").into()),
    }
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} ended with {}: {said}", output.status).into())
}
