//! What a reader makes of a line on a page before it is typed.

/// Words in capitals that stand for the reader's own, and what they are in the tests.
const PLACEHOLDERS: [(&str, &str); 7] = [
    ("NAMESPACE", "shop"),
    ("NAME…", "web"),
    ("NAME", "web"),
    ("FILE", "web.yaml"),
    ("DIR", "manuals"),
    ("COMMAND", "list"),
    ("…", ""),
];

/// The line as a reader would type it. `cargo run` from the repository is the binary that is there already.
pub(crate) fn typed(text: &str) -> String {
    let mut text = text.to_owned();
    for from in ["cargo run --release -- ", "cargo run -- "] {
        text = text.replace(from, "elasti ");
    }
    let words = text.split(' ').map(|word| {
        let stands = PLACEHOLDERS.iter().find(|(name, _)| *name == word);
        stands.map_or(word, |(_, own)| own)
    });
    words.collect::<Vec<_>>().join(" ")
}

/// How a command that goes on until Ctrl-C shows that it works, if it is one.
pub(crate) fn lasts(text: &str) -> Option<&'static str> {
    let words: Vec<&str> = text.split(' ').collect();
    let has = |word: &str| words.contains(&word);
    match words.as_slice() {
        _ if has("--help") || has("--once") => None,
        ["elasti", "top", ..] if !has("-o") => Some("asleep"),
        ["elasti", "list", ..] if has("-w") => Some("NAME"),
        ["elasti", "dashboard", ..] => Some("Dashboard: http"),
        ["elasti", "demo", ..] => Some("asleep"),
        ["kubectl", ..] if has("port-forward") => Some("Forwarding from"),
        _ => None,
    }
}
