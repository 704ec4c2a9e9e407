//! The time that a gRPC call allows itself (`grpc-timeout`): it ends a hold, and a pod gets what is left of it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// The pod gets the header anew only if so much time has passed, which no call notices that was not held.
const NOTICEABLE: Duration = Duration::from_millis(10);

/// When a call came, and when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallDeadline {
    came: Instant,
    pub(crate) ends: Instant,
}

impl CallDeadline {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let timeout = parse(headers.get(TIMEOUT)?.as_bytes())?;
        let came = Instant::now();
        let ends = came.checked_add(timeout)?;
        Some(Self { came, ends })
    }

    /// Takes the time that has passed out of the header.
    pub(crate) fn shorten(&self, headers: &mut HeaderMap) {
        if self.came.elapsed() >= NOTICEABLE {
            let left = self.ends.saturating_duration_since(Instant::now());
            headers.insert(TIMEOUT, render(left));
        }
    }
}

/// At most eight digits and a unit.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(amount * 3600),
        b'M' => Duration::from_secs(amount * 60),
        b'S' => Duration::from_secs(amount),
        b'm' => Duration::from_millis(amount),
        b'u' => Duration::from_micros(amount),
        b'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// In milliseconds, or in seconds where these have too many digits.
fn render(left: Duration) -> HeaderValue {
    const MOST: u128 = 99_999_999;
    let (amount, unit) = match left.as_millis() {
        millis @ ..=MOST => (millis, 'm'),
        _ => (u128::from(left.as_secs()).min(MOST), 'S'),
    };
    HeaderValue::from_str(&format!("{amount}{unit}")).unwrap_or(HeaderValue::from_static("0m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_at_most_eight_digits_and_a_unit() {
        for (text, expected) in [
            ("5S", Some(Duration::from_secs(5))),
            ("100m", Some(Duration::from_millis(100))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("1M", Some(Duration::from_secs(60))),
            ("7u", Some(Duration::from_micros(7))),
            ("7n", Some(Duration::from_nanos(7))),
            ("999999999S", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_left_is_written_with_eight_digits_at_most() {
        for (left, expected) in [
            (Duration::from_millis(1500), "1500m"),
            (Duration::ZERO, "0m"),
            (Duration::from_secs(99_999_999), "99999999S"),
            (Duration::from_secs(u64::MAX), "99999999S"),
        ] {
            assert_eq!(render(left), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_call_that_was_held_gets_a_shorter_timeout() {
        let mut headers = HeaderMap::new();
        headers.insert(TIMEOUT, HeaderValue::from_static("5S"));
        let call = CallDeadline::from_headers(&headers).unwrap();
        call.shorten(&mut headers);
        assert_eq!(headers[TIMEOUT], "5S");
        tokio::time::advance(Duration::from_secs(2)).await;
        call.shorten(&mut headers);
        assert_eq!(headers[TIMEOUT], "3000m");
    }
}
