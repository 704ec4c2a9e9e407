//! Durations and amounts for people.

use jiff::{SignedDuration, Timestamp};

/// A stretch as kubectl shows ages: `45s`, `5m10s`, `3h`, `2d4h`.
pub(crate) fn short(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: i64, unit: char, small: i64, rest: char| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{rest}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        _ => format!("{days}d"),
    }
}

/// How long ago something was, or `-`.
pub(crate) fn age(moment: Option<Timestamp>, now: Timestamp) -> String {
    moment.map_or_else(|| "-".to_owned(), |at| short(now.duration_since(at)))
}

/// A moment in a sentence.
pub(crate) fn clock(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Milliseconds in a sentence: `12 ms`, `1.25 s`.
pub(crate) fn millis(ms: i64) -> String {
    let whole = SignedDuration::from_millis(ms);
    match ms {
        ..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{:.2} s", whole.as_secs_f64()),
        _ => short(whole),
    }
}

/// An amount with as many digits as say something: `0.4`, `12.5`, `340`.
pub(crate) fn amount(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::{amount, millis, short};

    #[test]
    fn spans_read_as_kubectl_writes_them() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (310, "5m10s"),
            (900, "15m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (100_000, "27h"),
            (187_200, "2d4h"),
            (900_000, "10d"),
        ] {
            assert_eq!(short(SignedDuration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn amounts_have_three_digits_at_most() {
        assert_eq!(
            [amount(0.0), amount(1.234), amount(12.34), amount(345.6)],
            ["0.00", "1.23", "12.3", "346"]
        );
        assert_eq!(
            [millis(7), millis(1250), millis(90_000)],
            ["7 ms", "1.25 s", "90s"]
        );
    }
}
