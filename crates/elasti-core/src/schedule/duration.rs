//! Durations in Go's format, as KubeElasti's specs and settings have them.

use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;

/// A duration above zero, as Go writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let duration = parse_go_duration(text).and_then(|duration| duration.try_into().ok());
        let above_zero = duration.filter(|duration: &Duration| !duration.is_zero());
        above_zero.map(Self).ok_or(InvalidDuration)
    }
}

/// The text is not a duration above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDuration;

/// Parses a duration as Go's `time.ParseDuration` does: `1h30m`, `1.5h`, `300ms`, `-2m`; `None` if it is not one.
#[must_use]
pub fn parse_go_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total_nanos: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        total_nanos = total_nanos.checked_add(part_nanos(number, unit_nanos(unit)?)?)?;
        rest = next;
    }
    let nanos = i64::try_from(total_nanos).ok()?;
    Some(SignedDuration::from_nanos(if negative {
        -nanos
    } else {
        nanos
    }))
}

fn unit_nanos(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `number` (digits with at most one point) times `unit`, cut to whole nanoseconds.
fn part_nanos(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // Eighteen digits are more than a nanosecond of an hour needs; the rest cannot change the result.
    let digits = fraction.get(..fraction.len().min(18))?;
    let scale = 10_i128.pow(u32::try_from(digits.len()).ok()?);
    let fraction: i128 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    whole
        .checked_mul(unit)?
        .checked_add(fraction.checked_mul(unit)? / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_parse_as_in_go() {
        let good = [
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("300ms", 300),
            ("0", 0),
            ("+5s", 5_000),
            ("-2m", -120_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("2h45m30.25s", 9_930_250),
            ("1000us", 1),
            ("1000µs", 1),
        ];
        for (text, millis) in good {
            assert_eq!(
                parse_go_duration(text),
                Some(SignedDuration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "24",
            "h",
            "1d",
            "1h ",
            " 1h",
            "1..5h",
            ".s",
            "-",
            "1h-30m",
            "9999999999h",
            "1e3s",
        ] {
            assert_eq!(parse_go_duration(text), None, "{text}");
        }
    }
}
