//! Where things lie: the repository, what cargo builds, and the cache folder of the user.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The root of the repository: the folder above this package.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// Where cargo builds, and where checks leave their files: `.ci/run` moves it into the cache.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// What took minutes to build and serves every clone; `cargo clean` does not reach it.
pub(crate) fn cache() -> Result<PathBuf, Box<dyn Error>> {
    let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(folder), _) if !folder.is_empty() => PathBuf::from(folder),
        (_, Some(home)) => PathBuf::from(home).join(".cache"),
        _ => return Err("neither XDG_CACHE_HOME nor HOME says where the cache is".into()),
    };
    Ok(base.join("elasti"))
}

/// Held while a folder of the cache is being filled, so that a second process waits and finds it there.
pub(crate) fn lock(folder: &Path) -> Result<File, Box<dyn Error>> {
    fs::create_dir_all(cache()?)?;
    let lock = File::create(folder.with_added_extension("lock"))?;
    lock.lock()?;
    Ok(lock)
}
