//! The chart as a package that names the image of its own release.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::VERSION;
use super::image_name::ImageName;
use crate::kubernetes::go_programs;
use crate::paths::{self, root};

const CHART: &str = "deploy/helm/elasti";
/// The lines of values.yaml that name the image.
const REGISTRY: &str = "    registry: \"\"\n";
const REPOSITORY: &str = "    repository: elasti/elasti\n";

/// The name of the package, as Helm makes it.
pub(super) fn package_name() -> String {
    format!("elasti-{VERSION}.tgz")
}

/// Writes `elasti-VERSION.tgz` into the folder.
pub(super) fn package(image: &ImageName, folder: &Path) -> Result<(), Box<dyn Error>> {
    let staging = paths::target().join("release-staging/chart");
    if staging.exists() {
        fs::remove_dir_all(&staging)?;
    }
    copy(&root().join(CHART), &staging)?;
    let values = staging.join("values.yaml");
    fs::write(&values, with_image(&fs::read_to_string(&values)?, image)?)?;
    let mut package = Command::new(go_programs::HELM.path()?);
    package
        .arg("package")
        .arg(&staging)
        .args(["--version", VERSION, "--app-version", VERSION])
        .arg("--destination")
        .arg(folder);
    succeed(&mut package)?;
    fs::remove_dir_all(&staging)?;
    Ok(())
}

/// Writes `index.yaml`, which makes the folder a chart repository; the charts of an earlier index stay in it.
pub(super) fn index(
    folder: &Path,
    downloads: &str,
    previous: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    let mut index = Command::new(go_programs::HELM.path()?);
    index.args(["repo", "index"]).arg(folder);
    index.args(["--url", downloads]);
    if let Some(previous) = previous.filter(|file| file.exists()) {
        index.arg("--merge").arg(previous);
    }
    succeed(&mut index)
}

fn succeed(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {said}").into())
}

/// The values with the image that the release has, so that an installation needs no value for it.
fn with_image(values: &str, image: &ImageName) -> Result<String, Box<dyn Error>> {
    let named = format!("{REGISTRY}{REPOSITORY}");
    if values.matches(&named).count() != 1 {
        return Err("values.yaml names the image in other lines than expected".into());
    }
    let ImageName {
        registry,
        repository,
    } = image;
    let own = format!("    registry: \"{registry}\"\n    repository: {repository}\n");
    Ok(values.replace(&named, &own))
}

/// A folder with everything in it.
fn copy(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => {
                fs::copy(entry.path(), to)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::{CHART, ImageName, with_image};
    use crate::paths::root;

    fn values() -> String {
        fs::read_to_string(root().join(CHART).join("values.yaml")).unwrap()
    }

    #[test]
    fn the_default_image_leaves_the_values_as_they_are() {
        let image = ImageName::parse(ImageName::DEFAULT).unwrap();
        assert_eq!(with_image(&values(), &image).unwrap(), values());
    }

    #[test]
    fn another_image_is_in_the_values_of_all_pods() {
        let image = ImageName::parse("registry.example.com/team/elasti").unwrap();
        let written: Value =
            serde_saphyr::from_str(&with_image(&values(), &image).unwrap()).unwrap();
        let image = written.pointer("/global/image").unwrap();
        assert_eq!(image["registry"], "registry.example.com");
        assert_eq!(image["repository"], "team/elasti");
    }

    #[test]
    fn values_without_the_expected_lines_are_an_error() {
        let image = ImageName::parse(ImageName::DEFAULT).unwrap();
        assert!(with_image("global: {}\n", &image).is_err());
    }
}
