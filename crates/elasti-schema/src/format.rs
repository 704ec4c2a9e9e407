//! Formats of texts.

use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::civil::Date;

/// Formats that are checked here. Kubernetes knows a few more, none of which stands in our schemas.
const KNOWN: [&str; 7] = ["byte", "cidr", "date", "date-time", "ipv4", "ipv6", "uuid"];

/// Whether this format is checked at all.
pub(crate) fn is_known(format: &str) -> bool {
    KNOWN.contains(&format)
}

/// Whether `text` has this format; true for a format that is not known.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format {
        "byte" => is_base64(text),
        "cidr" => is_cidr(text),
        "date" => text.len() == 10 && text.parse::<Date>().is_ok(),
        "date-time" => is_date_time(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "uuid" => is_uuid(text),
        _ => true,
    }
}

/// RFC 3339: a date, `T`, a time, and `Z` or an offset, without the annotations that jiff also reads.
fn is_date_time(text: &str) -> bool {
    let separator = text.as_bytes().get(10);
    separator.is_some_and(|s| s.eq_ignore_ascii_case(&b't'))
        && !text.contains('[')
        && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let Ok(length) = length.parse::<u8>() else {
        return false;
    };
    (address.parse::<Ipv4Addr>().is_ok() && length <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && length <= 128)
}

fn is_uuid(text: &str) -> bool {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn texts_match_their_formats() {
        for (format, good, bad) in [
            ("date-time", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05"),
            (
                "date-time",
                "2026-01-02T03:04:05.123456+02:00",
                "2026-13-02T03:04:05Z",
            ),
            ("date-time", "2026-01-02t03:04:05z", "yesterday"),
            ("date", "2026-02-28", "2026-02-30"),
            ("byte", "b2s=", "{\"ok\":true}"),
            ("byte", "b2sh", "b2s"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "fd00::1", "fd00::g"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ] {
            assert!(matches(format, good), "{good} is a {format}");
            assert!(!matches(format, bad), "{bad} is no {format}");
        }
        assert!(matches("int32", "anything"), "unknown formats are ignored");
    }
}
