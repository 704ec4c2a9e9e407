//! The README and docs/ as a reader follows them: every command is typed, every YAML is applied.
//! class.rs says which test runs which command; against_code.rs holds links, metrics and reasons against the code.

mod against_code;
mod class;
mod cluster;
mod commands;
mod compatibility;
mod data;
mod existing;
mod fake_cluster;
mod objects;
mod page;
mod prometheus;
mod shell;
mod typed;

use commands::Shown;
use page::{Block, Page};

/// What a reader meets on a page, from top to bottom.
enum Item<'a> {
    Yaml(&'a Block),
    Command(Shown),
}

impl Item<'_> {
    fn line(&self) -> usize {
        match self {
            Self::Yaml(block) => block.line,
            Self::Command(shown) => shown.line,
        }
    }
}

fn items(page: &Page) -> Vec<Item<'_>> {
    let yaml = page.blocks.iter().filter(|block| block.language == "yaml");
    let mut items: Vec<Item<'_>> = yaml.map(Item::Yaml).collect();
    items.extend(commands::in_page(page).into_iter().map(Item::Command));
    items.sort_by_key(Item::line);
    items
}

/// Keeps faults, and tells them all at once.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, place: &str, outcome: Result<(), String>) {
        if let Err(what) = outcome {
            let what = what.trim_end().replace('\n', "\n    ");
            println!("{place}: {what}");
            self.0.push(format!("{place}: {what}"));
        }
    }

    fn none(self) {
        assert!(self.0.is_empty(), "\n{}\n", self.0.join("\n"));
    }
}
