//! An object as YAML for the page: without managed fields and without what may be secret.
//! Never shows the value of a header: a trigger's may be a credential.

use serde_json::Value;

use super::yaml;

const MASK: &str = "(not shown)";
/// Holds the whole object once more, headers included.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Keys that contain one of these are masked.
const SECRET_WORDS: [&str; 6] = [
    "authorization",
    "password",
    "secret",
    "token",
    "apikey",
    "credential",
];

/// The object as YAML.
pub(crate) fn yaml(object: &Value) -> String {
    let mut object = object.clone();
    clean(&mut object);
    yaml::write(&object)
}

/// Removes managed fields and masks secrets.
pub(crate) fn clean(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(LAST_APPLIED);
        }
    }
    mask(object);
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match hides(key) {
                    Hides::Values => cover_all(value),
                    Hides::Itself if !value.is_object() && !value.is_array() => cover(value),
                    Hides::Itself | Hides::Nothing => mask(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        Value::String(text) => {
            if let Some(without) = without_login(text) {
                *text = without;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

enum Hides {
    Nothing,
    Itself,
    Values,
}

fn hides(key: &str) -> Hides {
    let key: String = key.to_lowercase().replace(['-', '_'], "");
    if key == "headers" {
        return Hides::Values;
    }
    match SECRET_WORDS.iter().any(|word| key.contains(word)) {
        true => Hides::Itself,
        false => Hides::Nothing,
    }
}

fn cover(value: &mut Value) {
    if !value.is_null() {
        *value = MASK.into();
    }
}

/// Headers of a trigger are a map of values; those of a probe answer are a list of names and values.
fn cover_all(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(cover),
        Value::Array(list) => {
            for one in list {
                if let Some(value) = one.get_mut("value") {
                    cover(value);
                }
            }
        }
        other => cover(other),
    }
}

/// `http://user:password@host` without the login.
fn without_login(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#', ' ']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let (_, host) = authority.rsplit_once('@')?;
    Some(format!("{scheme}://{MASK}@{host}{path}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_may_be_secret_is_shown() {
        let object = json!({
            "metadata": {
                "name": "web",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {LAST_APPLIED: "S3CRET", "team": "shop", "my/api-key": "S3CRET"},
            },
            "spec": {
                "triggers": [{"type": "prometheus", "metadata": {
                    "query": "up",
                    "serverAddress": "http://me:S3CRET@prometheus:9090/x",
                    "headers": {"X-Scope-OrgID": "S3CRET", "Authorization": "Bearer S3CRET"},
                    "bearerToken": "S3CRET",
                }}],
                "probeResponse": [{"headers": [{"name": "x-key", "value": "S3CRET"}]}],
            },
        });
        let shown = yaml(&object);
        assert!(!shown.contains("S3CRET"), "{shown}");
        assert!(!shown.contains("managedFields"), "{shown}");
        for kept in [
            "team: shop",
            "query: up",
            "X-Scope-OrgID",
            "x-key",
            "@prometheus:9090/x",
        ] {
            assert!(shown.contains(kept), "{kept} is gone: {shown}");
        }
    }

    #[test]
    fn queries_and_plain_addresses_stay_as_they_are() {
        for text in [
            "sum(rate(x{a=\"b@c\"}[5m]))",
            "http://prometheus:9090",
            "http://p/a@b",
            "no",
        ] {
            let mut value = json!({"query": text});
            clean(&mut value);
            assert_eq!(value, json!({"query": text}));
        }
    }
}
