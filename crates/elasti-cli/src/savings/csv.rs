//! Savings as CSV (RFC 4180), with fields that no spreadsheet takes for a formula.

use elasti_dashboard::Price;

use super::group::{By, Group};

/// A heading, and a line for each group.
pub(super) fn lines(by: &By, groups: &[Group], total: &Group, price: Option<&Price>) -> String {
    let resources: Vec<&String> = total.saved.resource_hours.keys().collect();
    let names = match by {
        By::Service => vec!["namespace", "name"],
        By::Namespace => vec!["namespace"],
        By::Month => vec!["month"],
        By::Label(key) => vec![key.as_str()],
    };
    let mut heading: Vec<String> = names.iter().map(|&name| text(name)).collect();
    let sums = [
        "services",
        "asleep_seconds",
        "pod_hours",
        "cpu_hours",
        "gib_hours",
    ];
    heading.extend(sums.map(str::to_owned));
    heading.extend(resources.iter().map(|name| text(&format!("{name}_hours"))));
    if price.is_some() {
        heading.extend(["cost", "currency"].map(str::to_owned));
    }
    let mut all = line(&heading);
    for group in groups {
        let saved = &group.saved;
        let named = match by {
            By::Service => vec![&group.namespace, &group.name],
            By::Namespace => vec![&group.namespace],
            By::Month => vec![&group.month],
            By::Label(_) => vec![&group.label],
        };
        let named = named
            .into_iter()
            .map(|name| text(name.as_deref().unwrap_or_default()));
        let mut fields: Vec<String> = named.collect();
        fields.push(group.services.to_string());
        fields.push(group.asleep_seconds.to_string());
        fields.extend([saved.pod_hours, saved.cpu_hours, saved.gib_hours].map(number));
        let of = |name: &&String| saved.resource_hours.get(*name).copied().unwrap_or(0.0);
        fields.extend(resources.iter().map(|name| number(of(name))));
        if let Some(price) = price {
            fields.push(number(group.cost.unwrap_or(0.0)));
            fields.push(text(price.currency()));
        }
        all.push_str(&line(&fields));
    }
    all
}

fn line(fields: &[String]) -> String {
    fields.join(",") + "\r\n"
}

/// Enough digits for a second of a thousandth of a core.
fn number(value: f64) -> String {
    format!("{value:.6}")
}

/// A text as one field. What a spreadsheet could take for a formula gets a quote in front, as OWASP advises: names in
/// Kubernetes cannot begin like one, but a currency is whatever was typed.
fn text(value: &str) -> String {
    let formula = value.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let value = match formula {
        true => format!("'{value}"),
        false => value.to_owned(),
    };
    match value.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value,
    }
}

#[cfg(test)]
mod tests {
    use elasti_view::view::Saved;

    use super::super::group::{By, Group};
    use super::{lines, text};

    #[test]
    fn a_line_has_the_names_and_every_sum_of_its_group() {
        let saved = Saved {
            pod_hours: 10.0,
            cpu_hours: 0.000_25,
            gib_hours: 5.5,
            resource_hours: [("nvidia.com/gpu".to_owned(), 2.0)].into(),
        };
        let group = Group {
            label: Some("ml".to_owned()),
            services: 2,
            asleep_seconds: 36_000,
            saved,
            cost: Some(0.1),
            ..Group::default()
        };
        let none = Group {
            label: None,
            ..Group::default()
        };
        let price = "0.03,0.004,=EUR".parse().unwrap();
        let by = By::Label("team".to_owned());
        let written = lines(&by, &[group.clone(), none], &group, Some(&price));
        assert_eq!(
            written,
            "team,services,asleep_seconds,pod_hours,cpu_hours,gib_hours,nvidia.com/gpu_hours,cost,currency\r\n\
             ml,2,36000,10.000000,0.000250,5.500000,2.000000,0.100000,'=EUR\r\n\
             ,0,0,0.000000,0.000000,0.000000,0.000000,0.000000,'=EUR\r\n"
        );
    }

    #[test]
    fn a_field_is_quoted_where_it_must_be_and_never_a_formula() {
        for (value, field) in [
            ("web", "web"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"no\"", "\"say \"\"no\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            (
                "=HYPERLINK(\"x\",\"y\")",
                "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\"",
            ),
        ] {
            assert_eq!(text(value), field);
        }
    }
}
