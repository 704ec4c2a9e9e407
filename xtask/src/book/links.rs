//! The links of the site: rewritten for it before it is made, and followed afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where a page lies in the site's sources: mdBook takes no link to a README.
pub(super) fn in_site(page: &Path) -> PathBuf {
    match page.ends_with("README.md") {
        true => page.with_file_name("index.md"),
        false => page.to_path_buf(),
    }
}

/// The text of a page with links that work in the site. Blocks of code stay as they are.
pub(super) fn for_site(text: &str, page: &Path, repository: &str) -> String {
    let mut inside = false;
    let mut made = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        }
        match inside {
            true => made.push_str(line),
            false => made.push_str(&line_for_site(line, page, repository)),
        }
    }
    made
}

fn line_for_site(line: &str, page: &Path, repository: &str) -> String {
    let mut parts = line.split("](");
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        made.push_str("](");
        match part.split_once(')') {
            Some((link, rest)) => {
                made.push_str(&link_for_site(link, page, repository));
                made.push(')');
                made.push_str(rest);
            }
            None => made.push_str(part),
        }
    }
    made
}

fn link_for_site(link: &str, page: &Path, repository: &str) -> String {
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, format!("#{anchor}")),
        None => (link, String::new()),
    };
    if path.is_empty() || is_foreign(link) {
        return link.to_owned();
    }
    let folder = page.parent().unwrap_or(Path::new(""));
    match normal(&Path::new("docs").join(folder).join(path)) {
        Some(target) if target.starts_with("docs") => {
            format!("{}{anchor}", in_site(Path::new(path)).display())
        }
        Some(target) => format!("{repository}/blob/main/{}{anchor}", target.display()),
        None => link.to_owned(),
    }
}

fn is_foreign(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:") || link.starts_with("data:")
}

/// Without `.` and `..`; `None` if it leaves the root.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut made = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => made.push(name),
            Component::ParentDir => {
                if !made.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(made)
}

/// The links between the pages of a site that lead nowhere.
pub(super) fn broken(site: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut pages = BTreeMap::new();
    let mut others = BTreeSet::new();
    let mut folders = vec![site.to_path_buf()];
    while let Some(one) = folders.pop() {
        for entry in fs::read_dir(one)? {
            let path = entry?.path();
            let name = path.strip_prefix(site)?.to_path_buf();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "html") {
                pages.insert(name, fs::read_to_string(path)?);
            } else {
                others.insert(name);
            }
        }
    }
    // Its links are of wherever the visitor came from.
    pages.remove(Path::new("404.html"));
    if pages.is_empty() {
        return Err(format!("no page in {}", site.display()).into());
    }
    let mut broken = Vec::new();
    for (name, text) in &pages {
        let links = attributes(text, "href").chain(attributes(text, "src"));
        for link in links.filter(|link| !is_foreign(link)) {
            if !leads_somewhere(name, link, &pages, &others) {
                broken.push(format!("{}: {link}", name.display()));
            }
        }
    }
    Ok(broken)
}

/// The values of an attribute.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {name}=\"");
    let found: Vec<&str> = text
        .split(&begin)
        .skip(1)
        .filter_map(|rest| rest.split_once('"').map(|(value, _)| value))
        .collect();
    found.into_iter()
}

fn leads_somewhere(
    from: &Path,
    link: &str,
    pages: &BTreeMap<PathBuf, String>,
    others: &BTreeSet<PathBuf>,
) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = from.parent().unwrap_or(Path::new(""));
    let target = match path {
        "" => Some(from.to_path_buf()),
        path if path.ends_with('/') || path == "." => normal(&folder.join(path).join("index.html")),
        path => normal(&folder.join(path)),
    };
    let Some(target) = target else {
        return false;
    };
    match pages.get(&target) {
        None => others.contains(&target),
        Some(text) => anchor.is_empty() || attributes(text, "id").any(|id| id == anchor),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{broken, for_site};

    fn made(text: &str, page: &str) -> String {
        for_site(text, Path::new(page), "https://git.example.com/elasti")
    }

    #[test]
    fn links_out_of_docs_lead_to_the_repository() {
        assert_eq!(
            made(
                "[a](../../README.md#install), [b](triggers.md)",
                "guide/first-service.md"
            ),
            "[a](https://git.example.com/elasti/blob/main/README.md#install), [b](triggers.md)"
        );
    }

    #[test]
    fn readmes_are_the_index_of_their_folder() {
        assert_eq!(
            made("[a](guide/README.md#x)", "README.md"),
            "[a](guide/index.md#x)"
        );
    }

    #[test]
    fn other_sites_headings_and_code_stay() {
        for text in [
            "[a](https://semver.org)",
            "[a](#below)",
            "```\n[a](../../x)\n```\n",
        ] {
            assert_eq!(made(text, "gitops.md"), text);
        }
    }

    #[test]
    fn a_link_to_a_missing_page_file_or_heading_is_found() {
        let site = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = site.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "index.html",
            "<a href=\"guide/a.html#x\"></a> <img src=\"logo.svg\"> <a href=\"https://semver.org\">",
        );
        write(
            "guide/a.html",
            "<h1 id=\"x\"></h1> <a href=\"../index.html\"></a>",
        );
        write("logo.svg", "");
        assert_eq!(broken(site.path()).unwrap(), Vec::<String>::new());
        write(
            "index.html",
            "<a href=\"guide/a.html#y\"></a> <img src=\"none.svg\"> <a href=\"../out.html\">",
        );
        assert_eq!(
            broken(site.path()).unwrap(),
            [
                "index.html: guide/a.html#y",
                "index.html: ../out.html",
                "index.html: none.svg"
            ]
        );
    }
}
