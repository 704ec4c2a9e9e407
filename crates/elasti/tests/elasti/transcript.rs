//! The words of a transcript that differ from run to run: moments, names of pods, addresses, numbers that count up.

/// Without what differs from run to run.
pub fn normalised(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(line).collect();
    lines.join("\n") + "\n"
}

fn line(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.');
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        if end == 0 {
            let next = rest.chars().next().unwrap().len_utf8();
            out.push_str(&rest[..next]);
            rest = &rest[next..];
            continue;
        }
        let (token, after) = rest.split_at(end);
        out.push_str(&named(token));
        rest = after;
    }
    // `DATE CLOCK UTC`, as sentences of the command line have it.
    out.replace("DATE CLOCK UTC", "TIME")
}

/// A word, or the name of its kind where it differs from run to run.
fn named(token: &str) -> String {
    let shape: String = token
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let bare = token.trim_end_matches(['.', ':']);
    let tail = &token[bare.len()..];
    let parts: Vec<&str> = bare.split('-').collect();
    let is_hash = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len())
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let number = bare.chars().all(|c| c.is_ascii_digit() || c == '.');
    // Counted by the second, or a part of something that is.
    let counts = bare.len() > 5 || (bare.contains('.') && bare.len() > 4);
    if number && counts && !bare.starts_with("127.") {
        return format!("N{tail}");
    }
    if shape.starts_with("0000-00-00T") {
        return format!("TIME{tail}");
    }
    match shape.as_str() {
        "0000-00-00" => return "DATE".to_owned(),
        "00:00:00" => return "CLOCK".to_owned(),
        _ => {}
    }
    if bare.starts_with("127.") {
        return format!("ADDRESS{tail}");
    }
    match parts.as_slice() {
        [name @ .., set, pod]
            if !name.is_empty() && is_hash(set, 8..=10) && is_hash(pod, 5..=5) =>
        {
            format!("{}-POD{tail}", name.join("-"))
        }
        // What a name begins with that is not complete yet.
        [name @ .., set, ""] if !name.is_empty() && is_hash(set, 8..=10) => {
            format!("{}-SET-{tail}", name.join("-"))
        }
        [name @ .., set]
            if !name.is_empty()
                && is_hash(set, 10..=10)
                && set.contains(|c: char| c.is_ascii_digit()) =>
        {
            format!("{}-SET{tail}", name.join("-"))
        }
        ["node", _] => format!("NODE{tail}"),
        _ => token.to_owned(),
    }
}
