//! Text that a client of a user's service chose, made safe to store and to print: bounded, and printable ASCII only.

/// Where text was cut off.
const CUT: &str = "...";

/// At most `most` bytes of it. A backslash is doubled and every byte that is not printable ASCII becomes `\xNN`, so that
/// nothing in a terminal, a log or a status can be faked with it.
#[must_use]
pub fn client_text(text: &[u8], most: usize) -> String {
    let mut safe = String::new();
    // The last end of a character that leaves room for the mark.
    let mut cut_at = 0;
    for byte in text {
        let escaped = match byte {
            b'\\' => "\\\\".to_owned(),
            b' '..=b'~' => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        if safe.len() + escaped.len() > most {
            safe.truncate(cut_at);
            safe.extend(CUT.chars().take(most));
            break;
        }
        safe.push_str(&escaped);
        if safe.len() + CUT.len() <= most {
            cut_at = safe.len();
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::client_text;

    #[test]
    fn what_is_not_printable_ascii_is_escaped() {
        let text = "GET\r\n\u{1b}[31m \u{202e}a\\b".as_bytes();
        let safe = client_text(text, 100);
        assert_eq!(safe, "GET\\x0d\\x0a\\x1b[31m \\xe2\\x80\\xaea\\\\b");
        assert!(safe.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }

    #[test]
    fn text_is_cut_at_its_bound_and_never_inside_an_escape() {
        assert_eq!(client_text(b"abcdef", 6), "abcdef");
        assert_eq!(client_text(b"abcdefg", 6), "abc...");
        assert_eq!(client_text(&[0xff; 10], 10), "\\xff...");
        assert_eq!(client_text(&[0xff; 10], 8), "\\xff...");
        assert_eq!(client_text(b"ab\\\\\\\\", 8), "ab\\\\...");
        for most in 0..40 {
            for text in [
                &[b'\\'; 40][..],
                &[1; 40],
                b"a\x01\\b\x02\\\\c\x03abcdefghijkl",
            ] {
                let safe = client_text(text, most);
                assert!(safe.len() <= most, "{safe} in {most}");
                let kept = safe.trim_end_matches('.');
                let whole = kept.replace("\\\\", "").replace("\\x", "");
                assert!(!whole.contains('\\'), "{safe} in {most}");
            }
        }
    }

    #[test]
    fn as_it_was_sent_it_fakes_a_line_and_controls_a_terminal() {
        let sent = "/\n{\"level\":\"ERROR\"} \u{1b}[2J";
        let (raw, safe) = (format!("GET {sent}"), client_text(sent.as_bytes(), 100));
        assert_eq!((raw.lines().count(), safe.lines().count()), (2, 1));
        assert!(raw.contains('\u{1b}') && !safe.contains('\u{1b}'));
    }
}
