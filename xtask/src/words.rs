//! Retired words: `cargo xtask words` fails on those that ordinary words have replaced, in sources, texts and file names.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::process::Command;

use crate::paths::root;

pub(crate) const USAGE: &str =
    "  words           find retired words in sources, texts and file names
";

/// A word, or several, and what to say instead. With a capital it is an identifier and matches as it is written,
/// else it matches in any case; where a letter, a digit or `_` follows or precedes, it is another word.
type Word = (&'static str, &'static str);

const RETIRED: &[Word] = &[
    ("Ears", "HeldSource"),
    ("FIRST_PAUSE", "BACKOFF_MIN"),
    ("Guest", "ConnectionPermit"),
    ("Hearing", "HeldState"),
    ("LONGEST_PAUSE", "BACKOFF_MAX"),
    ("Loose", "Unmanageable"),
    ("Neighbours", "BackendFilter"),
    ("PATIENCE", "..._TIMEOUT"),
    ("PortBook", "PortAllocator"),
    ("Scene", "Snapshot"),
    ("Seat", "LeaderElection"),
    ("Unheard", "HeldUnavailable"),
    ("a look", "a reconcile"),
    ("a person asks for", "a user requests"),
    ("a room", "a module"),
    ("any_ground", "both_clusters"),
    ("chronicle", "timeline"),
    ("const CALM", "a name with a unit"),
    ("const KEPT", "a name with a unit"),
    ("const REST", "a name with a unit"),
    ("deed", "trace event"),
    ("ears", "HeldSource, receive"),
    ("fn of", "from_..., new, or a noun"),
    ("footing", "preconditions"),
    ("guest", "connection, client"),
    ("hands off", "leave, do nothing"),
    ("has the say", "takes precedence"),
    ("hear", "receive, get"),
    ("hear_out", "answer_if_http"),
    ("hearing", "HeldState"),
    ("in its hands", "that it has"),
    ("journey", "end-to-end test, scenario"),
    ("journeys", "end-to-end tests, scenarios"),
    ("led to", "routed to"),
    ("let_go", "finalize"),
    ("lodging", "real cluster"),
    ("look_again", "requeue_at"),
    ("loose", "unmanageable"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("neighbourhood", "test environment, TestEnv"),
    ("nobody", "nothing, no client, no process"),
    ("on its way out", "terminating"),
    ("on its way up", "starting"),
    ("plot", "TestEnvConfig"),
    ("plots", "test environments"),
    ("rights", "permissions"),
    ("scene", "snapshot"),
    ("seat", "LeaderElection"),
    ("seats", "leader elections"),
    ("sightings", "StableSince"),
    ("somebody", "a client, a person"),
    ("steward", "claimant"),
    ("strays", "files outside"),
    ("teller", "ApiClient"),
    ("the brain", "the planner"),
    ("the house", "the code base"),
    ("the meal", "all of it"),
    ("the remains", "the leftovers"),
    ("the spine", "reconcile"),
    ("told to end", "SIGTERM received, deleted"),
    ("town", "simulated cluster, FakeCluster"),
    ("unheard", "HeldUnavailable"),
    ("voice", "printer"),
    ("voices", "printers"),
    ("whoever", "what, a client that, callers"),
    ("wish", "request"),
    ("wishes", "requests"),
];

/// The list itself, the words that the glossary explains, and history.
const EXEMPT: [&str; 3] = ["xtask/src/words.rs", "docs/glossary.md", "CHANGELOG.md"];

/// Kinds of files with words of ours.
const KINDS: [&str; 15] = [
    "css", "html", "js", "json", "md", "mjs", "push", "rs", "run", "snap", "toml", "tpl", "txt",
    "yaml", "yml",
];

/// A retired word in a file.
struct Find {
    path: String,
    line: usize,
    word: Word,
}

/// As a check, and as a command of its own.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let mut found = Vec::new();
    for path in paths()? {
        let words = || RETIRED.iter().copied();
        found.extend(find(&path, &path, words()).map(|find| Find { line: 0, ..find }));
        // A file that is not text has no words.
        if let Ok(text) = fs::read_to_string(root().join(&path)) {
            found.extend(find(&path, &text, words()));
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for Find { path, line, word } in &found {
        let (retired, instead) = word;
        println!("{path}:{line}: {retired:?}: say {instead}");
        let folder: Vec<&str> = path.split('/').take(2).collect();
        *counts.entry(folder.join("/")).or_default() += 1;
    }
    if found.is_empty() {
        return Ok(());
    }
    for (folder, count) in counts {
        println!("{count:5} {folder}");
    }
    Err(format!("{} retired words", found.len()).into())
}

/// The files of the repository, new ones too.
fn paths() -> Result<Vec<String>, Box<dyn Error>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err("git ls-files failed".into());
    }
    let list = String::from_utf8(output.stdout)?;
    let ours = |path: &&str| {
        let kind = path.rsplit(['.', '/']).next().unwrap_or_default();
        KINDS.contains(&kind) && !EXEMPT.contains(path)
    };
    Ok(list.lines().filter(ours).map(str::to_owned).collect())
}

/// Where a text has the words.
fn find<'a>(
    path: &'a str,
    text: &'a str,
    words: impl Iterator<Item = Word> + Clone + 'a,
) -> impl Iterator<Item = Find> + 'a {
    text.lines().enumerate().flat_map(move |(index, line)| {
        let lower = line.to_lowercase();
        let words = words.clone().filter(move |(word, _)| {
            let exact = word.contains(|c: char| c.is_uppercase());
            has_word(if exact { line } else { &lower }, word)
        });
        let line = index + 1;
        words
            .map(move |word| Find {
                path: path.to_owned(),
                line,
                word,
            })
            .collect::<Vec<_>>()
    })
}

fn has_word(line: &str, word: &str) -> bool {
    let part_of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line.get(..start).and_then(|rest| rest.chars().next_back());
        let after = line.get(start + word.len()..);
        let after = after.and_then(|rest| rest.chars().next());
        !before.is_some_and(part_of_a_word) && !after.is_some_and(part_of_a_word)
    })
}

#[cfg(test)]
mod tests {
    use super::{find, has_word};

    #[test]
    fn a_part_of_another_word_is_no_match() {
        assert!(has_word("a town.", "town"));
        assert!(!has_word("downtown", "town"));
        assert!(!has_word("let town_hall = 1;", "town"));
    }

    #[test]
    fn identifiers_match_as_written_and_words_in_any_case() {
        let words = [("Guest", "permit"), ("nobody", "nothing")];
        let found = |text: &'static str| find("file", text, words.into_iter()).count();
        assert_eq!(found("Nobody is a guest"), 1);
        assert_eq!(found("struct Guest;\n// nobody"), 2);
    }
}
