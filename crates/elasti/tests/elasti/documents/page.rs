//! A page of Markdown: its blocks of code, its words in code, its links and headings.

use std::path::{Path, PathBuf};

/// A fenced block.
pub(super) struct Block {
    pub(super) language: String,
    pub(super) text: String,
    /// Of its first line, from 1.
    pub(super) line: usize,
}

pub(super) struct Page {
    /// Path from the root of the repository.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) blocks: Vec<Block>,
}

pub(super) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.join("../..").canonicalize().unwrap()
}

/// Every page of the root and of docs/.
pub(super) fn pages() -> Vec<Page> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
    below(&root().join("docs"), &mut found);
    found.sort();
    found.iter().map(|path| Page::load(path)).collect()
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

impl Page {
    fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => {
                    open = Some(Block {
                        language: language.trim().to_owned(),
                        text: String::new(),
                        line: number + 2,
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text += line;
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(
            open.is_none(),
            "{}: a block is never closed",
            path.display()
        );
        Self {
            name: path.strip_prefix(root()).unwrap().display().to_string(),
            text,
            blocks,
        }
    }

    pub(super) fn name_path(&self) -> PathBuf {
        PathBuf::from(&self.name)
    }

    /// Lines outside of blocks, with their numbers.
    pub(super) fn prose(&self) -> Vec<(usize, &str)> {
        let mut inside = false;
        let mut found = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if !inside {
                found.push((number + 1, line));
            }
        }
        found
    }

    /// What stands between back quotes in prose.
    pub(super) fn words_in_code(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in self.prose() {
            let inside = line.split('`').skip(1).step_by(2);
            found.extend(inside.map(|word| (number, word.to_owned())));
        }
        found
    }

    /// Targets of links in prose.
    pub(super) fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in self.prose() {
            for after in line.split("](").skip(1) {
                if let Some((link, _)) = after.split_once(')') {
                    found.push((number, link.to_owned()));
                }
            }
        }
        found
    }

    /// The file that a link names, from the root; `None` for the web and for this page.
    pub(super) fn target(&self, link: &str) -> Option<PathBuf> {
        let path = link.split('#').next().unwrap_or_default();
        if link.contains("://") || path.is_empty() {
            return None;
        }
        let from = root().join(&self.name);
        let path = from.parent()?.join(path).canonicalize().ok()?;
        path.strip_prefix(root()).ok().map(Path::to_path_buf)
    }

    /// Whether a link leads somewhere.
    pub(super) fn follow(&self, link: &str, pages: &[Self]) -> Result<(), String> {
        if link.contains("://") || link.starts_with("mailto:") {
            return Ok(());
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match path {
            "" => self.name_path(),
            _ => self
                .target(link)
                .ok_or_else(|| format!("{link} does not exist"))?,
        };
        if anchor.is_empty() {
            return Ok(());
        }
        let page = pages.iter().find(|page| page.name_path() == target);
        let page = page.ok_or_else(|| format!("{link} has no headings"))?;
        match page.anchors().iter().any(|one| one == anchor) {
            true => Ok(()),
            false => Err(format!("{link}: no such heading")),
        }
    }

    /// Headings as GitHub makes anchors of them.
    fn anchors(&self) -> Vec<String> {
        let headings = self.prose().into_iter().filter_map(|(_, line)| {
            let text = line.trim_start_matches('#');
            (text.len() < line.len()).then(|| text.trim().to_lowercase())
        });
        let kept = |heading: String| -> String {
            let letters = heading
                .chars()
                .filter(|one| one.is_alphanumeric() || " -_".contains(*one));
            letters
                .map(|one| if one == ' ' { '-' } else { one })
                .collect()
        };
        headings.map(kept).collect()
    }
}
