//! The documentation as a site: `cargo xtask book`. mdBook builds it from a copy of docs/; every link is followed.

mod links;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::checks::{cargo, run_command};
use crate::paths::{self, root};

pub(crate) const USAGE: &str = "  book [--repository URL]
                  make the site of docs/ in target/book/html and follow every link in it; files outside of docs/ are
                  linked at URL, the repository's page
";

const VERSION: &str = "0.5.4";
/// Where links out of docs/ lead if no repository is named: nowhere.
const NO_REPOSITORY: &str = "https://git.example.com/elasti";

/// Does what the words ask for; `None` where they ask for nothing known.
pub(crate) fn run(words: &[&str]) -> Option<Result<(), Box<dyn Error>>> {
    match words {
        [] => Some(build(NO_REPOSITORY)),
        ["--repository", url] => Some(build(url.trim_end_matches('/'))),
        _ => None,
    }
}

fn build(repository: &str) -> Result<(), Box<dyn Error>> {
    let folder = paths::target().join("book");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    fs::copy(root().join("book.toml"), folder.join("book.toml"))?;
    for page in pages(&root().join("docs"))? {
        let text = fs::read_to_string(root().join("docs").join(&page))?;
        let to = folder.join("src").join(links::in_site(&page));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(to, links::for_site(&text, &page, repository))?;
    }
    let images = folder.join("src/images");
    fs::create_dir_all(&images)?;
    for image in fs::read_dir(root().join("docs/images"))? {
        let image = image?;
        fs::copy(image.path(), images.join(image.file_name()))?;
    }
    run_command(Command::new(program()?).arg("build").arg(&folder)).into_result()?;
    let html = folder.join("html");
    let broken = links::broken(&html)?;
    for link in &broken {
        println!("broken: {link}");
    }
    println!("{}", html.join("index.html").display());
    match broken.len() {
        0 => Ok(()),
        count => Err(format!("{count} broken links").into()),
    }
}

/// The pages below a folder, as paths from it, sorted.
fn pages(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(one) = folders.pop() {
        for entry in fs::read_dir(one)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path.strip_prefix(folder)?.to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// mdBook from the path or the cache; it is built first where neither has it.
fn program() -> Result<PathBuf, Box<dyn Error>> {
    let folder = paths::cache()?.join(format!("mdbook-{VERSION}"));
    let own = folder.join("bin/mdbook");
    let _lock = paths::lock(&folder)?;
    for program in [Path::new("mdbook"), &own] {
        let version = Command::new(program).arg("--version").output();
        if version.is_ok_and(|said| said.stdout.ends_with(format!("v{VERSION}\n").as_bytes())) {
            return Ok(program.to_owned());
        }
    }
    let root = folder.display();
    cargo(&format!(
        "install --locked --root {root} --no-default-features --features search mdbook@{VERSION}"
    ))
    .into_result()?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    use super::pages;
    use crate::paths::root;

    const SUMMARY: &str = "SUMMARY.md";

    #[test]
    fn the_site_has_every_page_of_docs_once() {
        let docs = root().join("docs");
        let summary = fs::read_to_string(docs.join(SUMMARY)).unwrap();
        let listed = summary.lines().filter_map(|line| {
            let (_, link) = line.split_once("](")?;
            Some(PathBuf::from(link.strip_suffix(')')?))
        });
        let listed: Vec<PathBuf> = listed.collect();
        let once: BTreeSet<PathBuf> = listed.iter().cloned().collect();
        assert_eq!(once.len(), listed.len(), "a page is listed twice");
        let mut found: BTreeSet<PathBuf> = pages(&docs).unwrap().into_iter().collect();
        found.remove(&PathBuf::from(SUMMARY));
        assert_eq!(once, found);
    }
}
