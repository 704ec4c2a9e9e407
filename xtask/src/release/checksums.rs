//! `SHA256SUMS`, which `sha256sum --check` reads.

use std::error::Error;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The list; it names every other file of its folder.
pub(super) const NAME: &str = "SHA256SUMS";

pub(super) fn of_file(path: &Path) -> Result<String, Box<dyn Error>> {
    let digest = Sha256::digest(fs::read(path)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes the list of all files in the folder.
pub(super) fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::write(folder.join(NAME), list(folder)?)?;
    Ok(())
}

pub(super) fn list(folder: &Path) -> Result<String, Box<dyn Error>> {
    let mut lines = String::new();
    for name in super::files(folder)?.iter().filter(|name| *name != NAME) {
        let sum = of_file(&folder.join(name))?;
        lines.push_str(&format!("{sum}  {name}\n"));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::{NAME, write};

    #[test]
    fn sha256sum_reads_the_list_and_finds_a_file_that_changed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "one").unwrap();
        fs::write(folder.path().join("b"), "two").unwrap();
        write(folder.path()).unwrap();
        let check = || {
            let mut command = Command::new("sha256sum");
            command
                .args(["--check", "--strict", NAME])
                .current_dir(folder.path());
            command.output().unwrap().status.success()
        };
        assert!(check());
        fs::write(folder.path().join("b"), "three").unwrap();
        assert!(!check());
    }
}
