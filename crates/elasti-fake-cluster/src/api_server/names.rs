//! Kubernetes' rules for names, labels and label values, with its messages.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_label(text: &str) -> bool {
    let inner =
        |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_word(text: &str) -> bool {
    let edge = |letter: Option<u8>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let inner = |letter: u8| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter);
    edge(text.bytes().next()) && edge(text.bytes().last()) && text.bytes().all(inner)
}

/// `a.b-c`: most names. Returns what is wrong.
pub(crate) fn subdomain(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some("must be no more than 253 bytes".to_owned());
    }
    (!text.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned())
}

/// `a-b`: namespaces and port names.
pub(crate) fn label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!is_label(text)).then(|| LABEL.to_owned())
}

/// `a-b` that starts with a letter: Services.
pub(crate) fn label_1035(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    let starts_well = text
        .bytes()
        .next()
        .is_some_and(|letter| letter.is_ascii_lowercase());
    (!(is_label(text) && starts_well)).then(|| LABEL_1035.to_owned())
}

/// RBAC objects: anything that fits in one step of a path.
pub(crate) fn path_segment(text: &str) -> Option<String> {
    match text {
        "." => Some("may not be '.'".to_owned()),
        ".." => Some("may not be '..'".to_owned()),
        _ => ["/", "%"]
            .iter()
            .find(|part| text.contains(**part))
            .map(|part| format!("may not contain '{part}'")),
    }
}

/// `prefix.io/name`: label and annotation keys, finalizers.
pub(crate) fn qualified_name(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if prefix == Some("") {
        return Some("prefix part must be non-empty".to_owned());
    }
    if let Some(why) = prefix.and_then(subdomain) {
        return Some(format!("prefix part {why}"));
    }
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".to_owned());
    }
    (!is_word(name)).then(|| QUALIFIED.to_owned())
}

/// The value of a label.
pub(crate) fn label_value(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!text.is_empty() && !is_word(text)).then(|| VALUE.to_owned())
}
