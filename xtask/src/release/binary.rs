//! The command line as an archive of one static program and its licence.

use std::error::Error;
use std::fs;
use std::path::Path;

use crate::image;
use crate::paths::root;

/// The names in the archive. No links: krew unpacks only plain files.
pub(super) const PROGRAM: &str = "elasti";
const LICENCE: &str = "LICENSE";

/// Builds the command line and packs it.
pub(super) fn write_archive(staging: &Path, archive: &Path) -> Result<(), Box<dyn Error>> {
    pack(&image::command_line()?, staging, archive)
}

/// Packs a program, if it is a static one; the same program gives the same bytes.
fn pack(program: &Path, staging: &Path, archive: &Path) -> Result<(), Box<dyn Error>> {
    if needs_libraries(&fs::read(program)?)? {
        return Err(format!("{} is not static", program.display()).into());
    }
    let files = staging.join("archive");
    if files.exists() {
        fs::remove_dir_all(&files)?;
    }
    fs::create_dir_all(&files)?;
    fs::copy(program, files.join(PROGRAM))?;
    fs::copy(root().join(LICENCE), files.join(LICENCE))?;
    let tar = staging.join("archive.tar");
    image::pack(&files, &tar)?;
    fs::write(archive, image::compressed(&tar)?)?;
    fs::remove_dir_all(&files)?;
    fs::remove_file(tar)?;
    Ok(())
}

/// The kind of program header that names the dynamic loader.
const PT_INTERP: u32 = 3;

/// Whether a 64-bit little-endian ELF program asks for a dynamic loader, and so for libraries of the machine it runs on.
fn needs_libraries(program: &[u8]) -> Result<bool, Box<dyn Error>> {
    if program.get(..6) != Some(b"\x7fELF\x02\x01".as_slice()) {
        return Err("not a 64-bit little-endian ELF program".into());
    }
    let start = u64::from_le_bytes(field(program, 32)?);
    let size = u16::from_le_bytes(field(program, 54)?);
    let count = u16::from_le_bytes(field(program, 56)?);
    for index in 0..u64::from(count) {
        let at = usize::try_from(start + index * u64::from(size))?;
        if u32::from_le_bytes(field(program, at)?) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

fn field<const N: usize>(program: &[u8], at: usize) -> Result<[u8; N], Box<dyn Error>> {
    let bytes = program.get(at..at.saturating_add(N));
    Ok(bytes
        .ok_or("an ELF program that ends too early")?
        .try_into()?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::{needs_libraries, pack};

    /// The head of a program with one program header of this kind.
    fn program(kind: u8) -> Vec<u8> {
        let mut program = vec![0; 64 + 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[32] = 64;
        program[54] = 56;
        program[56] = 1;
        program[64] = kind;
        program
    }

    #[test]
    fn an_archive_has_the_program_and_its_licence_as_plain_files() {
        let folder = tempfile::tempdir().unwrap();
        let (built, archive) = (folder.path().join("built"), folder.path().join("a.tar.gz"));
        fs::write(&built, program(1)).unwrap();
        pack(&built, &folder.path().join("staging"), &archive).unwrap();
        let list = Command::new("tar")
            .args(["--list", "--verbose", "--gzip", "--file"])
            .arg(&archive)
            .output()
            .unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let entries: Vec<(&str, &str)> = list
            .lines()
            .map(|line| (&line[..1], line.rsplit(' ').next().unwrap()))
            .collect();
        assert_eq!(entries, [("-", "LICENSE"), ("-", "elasti")]);
        let first = fs::read(&archive).unwrap();
        pack(&built, &folder.path().join("staging"), &archive).unwrap();
        assert_eq!(fs::read(&archive).unwrap(), first);
    }

    #[test]
    fn a_program_that_is_not_static_is_not_packed() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("a.tar.gz");
        let own = std::env::current_exe().unwrap();
        assert!(pack(&own, &folder.path().join("staging"), &archive).is_err());
        assert!(!archive.exists());
    }

    #[test]
    fn a_program_that_is_linked_dynamically_is_found() {
        // Tests are.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(needs_libraries(&own).unwrap());
    }

    #[test]
    fn a_program_without_a_loader_is_static() {
        assert!(!needs_libraries(&program(1)).unwrap());
        assert!(needs_libraries(&program(3)).unwrap());
    }

    #[test]
    fn what_is_no_program_is_an_error() {
        assert!(needs_libraries(b"#!/bin/sh\n").is_err());
        assert!(needs_libraries(b"\x7fELF\x02\x01").is_err());
    }
}
