//! The commands that pages show: whole lines as a shell takes them, in the order of the page.

use super::page::{Block, Page};

/// One command line.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) page: String,
    pub(super) line: usize,
    /// Without prompt and comment, continued lines joined.
    pub(super) text: String,
    /// Between back quotes in a sentence or a table, and not in a block of its own.
    pub(super) in_prose: bool,
    /// What the page shows below it.
    pub(super) output: Vec<String>,
}

/// A command in prose begins with one of these; in a block every line is a command.
const PROGRAMS: [&str; 4] = ["elasti", "cargo", "helm", "kubectl"];
/// Blocks of these languages hold commands.
const SHELLS: [&str; 3] = ["", "sh", "console"];
/// The help texts; their blocks hold commands among other things.
const REFERENCE: &str = "docs/commands.md";

/// Every command of a page.
pub(super) fn in_page(page: &Page) -> Vec<Shown> {
    let mut found = Vec::new();
    for block in &page.blocks {
        if SHELLS.contains(&block.language.as_str()) {
            found.extend(of_block(page, block));
        } else if page.name == REFERENCE && block.language == "text" {
            found.extend(examples(page, block));
        }
    }
    for (line, code) in page.words_in_code() {
        let text = without_comment(&code);
        let words = split(&text);
        let program = words.iter().find(|word| !word.contains('='));
        // A single word is a name.
        let is_command = program.is_some_and(|one| PROGRAMS.contains(&one.as_str()));
        if is_command && words.len() > 1 {
            found.push(Shown::new(page, line, text, true));
        }
    }
    found.sort_by_key(|shown| shown.line);
    found
}

impl Shown {
    fn new(page: &Page, line: usize, text: String, in_prose: bool) -> Self {
        Self {
            page: page.name.clone(),
            line,
            text,
            in_prose,
            output: Vec::new(),
        }
    }

    /// Where it is and what it says, for the one who must fix it.
    pub(super) fn place(&self) -> String {
        format!("{}:{}: `{}`", self.page, self.line, self.text)
    }

    /// The programs of the line with their words: pipes and lists are several.
    pub(super) fn stages(&self) -> Vec<Vec<String>> {
        let stages = stages(&self.text).into_iter();
        stages.map(|stage| split(&stage)).collect()
    }
}

/// Each line is a command; with a prompt somewhere, the lines without one are output.
fn of_block(page: &Page, block: &Block) -> Vec<Shown> {
    let has_prompt = block.text.lines().any(|line| line.starts_with("$ "));
    let mut found: Vec<Shown> = Vec::new();
    let mut begun: Option<(usize, String)> = None;
    for (number, line) in block.text.lines().enumerate() {
        let number = block.line + number;
        let bare = match (&begun, line.strip_prefix("$ ")) {
            (None, None) if has_prompt => {
                let last = found.last_mut();
                last.into_iter()
                    .for_each(|shown| shown.output.push(line.to_owned()));
                continue;
            }
            (_, bare) => bare.unwrap_or(line),
        };
        let (first, before) = begun.take().unwrap_or((number, String::new()));
        match bare.strip_suffix('\\') {
            Some(open) => begun = Some((first, format!("{before}{} ", open.trim()))),
            None => {
                let text = without_comment(&format!("{before}{}", bare.trim()));
                if !text.is_empty() {
                    found.push(Shown::new(page, first, text, false));
                }
            }
        }
    }
    found
}

/// The examples of a help text: `Example: …`, or a line of their own, set in.
fn examples(page: &Page, block: &Block) -> Vec<Shown> {
    let lines = block.text.lines().enumerate();
    let found = lines.filter_map(|(number, line)| {
        let (label, rest) = line.split_once(':').unwrap_or(("", line));
        let labelled = !["", "Usage"].contains(&label) && !line.starts_with(' ');
        let text = match (labelled, line.strip_prefix("  ")) {
            (true, _) => rest.trim(),
            (false, Some(set_in)) if !set_in.starts_with(' ') => set_in,
            _ => return None,
        };
        let first = text.split_whitespace().next()?;
        let is_command = PROGRAMS.contains(&first) && !text.ends_with('.');
        is_command.then(|| Shown::new(page, block.line + number, text.to_owned(), false))
    });
    found.collect()
}

fn without_comment(line: &str) -> String {
    let line = line.strip_prefix('#').map_or(line, |_| "");
    let text = line.split(" # ").next().unwrap_or_default();
    text.trim().to_owned()
}

/// The parts between pipes and other signs that join commands, but for those in quotes.
pub(super) fn stages(line: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if letter == open => quote = None,
            (None, '|' | ';' | '&') => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        found.last_mut().unwrap().push(letter);
    }
    found.retain(|stage| !stage.trim().is_empty());
    found
}

/// Words as a shell splits them, as far as docs need it.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut any = false;
    for letter in line.chars() {
        match (quote, letter) {
            (None, '\'' | '"') => (quote, any) = (Some(letter), true),
            (Some(open), letter) if letter == open => quote = None,
            (None, letter) if letter.is_whitespace() => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            (_, letter) => {
                word.push(letter);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
        .into_iter()
        .take_while(|word| !word.starts_with('>'))
        .collect()
}
