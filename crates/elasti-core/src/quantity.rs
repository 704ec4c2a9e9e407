//! Amounts as Kubernetes writes them: `500m`, `1.5`, `128Mi`, `1e3`.
//! It never rounds to what a node could use: it is for sums that people read.

/// The amount as a plain number; `None` if it is not one.
#[must_use]
pub fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
        .unwrap_or((text, 1.0));
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E');
    if !number.chars().all(plain) {
        return None;
    }
    let value: f64 = number.parse().ok()?;
    Some(value * factor).filter(|amount| amount.is_finite())
}

/// Longer suffixes first; `E` is exa only where no exponent follows, and then it stands last.
const SUFFIXES: [(&str, f64); 15] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn amounts_read_as_kubernetes_reads_them() {
        for (text, amount) in [
            ("0", 0.0),
            ("2", 2.0),
            ("500m", 0.5),
            ("1.5", 1.5),
            ("250u", 0.000_25),
            ("128Mi", 134_217_728.0),
            ("1Gi", 1_073_741_824.0),
            ("1G", 1e9),
            ("64k", 64_000.0),
            ("1e3", 1000.0),
            ("1E3", 1000.0),
            ("2E", 2e18),
        ] {
            let read = parse(text).unwrap();
            assert!((read - amount).abs() <= amount * 1e-12, "{text}: {read}");
        }
        for text in ["", "m", "1 Gi", "abc", "1GiB", "inf", "nan"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
