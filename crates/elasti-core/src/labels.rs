//! A few labels, as small as they can be kept: the smallest map takes half a kilobyte, for each of ten thousand services
//! several times.

use std::collections::BTreeMap;
use std::fmt;

/// Labels in the order of their keys.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(one, _)| (**one).cmp(key)).ok()?;
        self.0.get(found).map(|(_, value)| &**value)
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As Kubernetes' types have them.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let pairs = self.iter();
        pairs
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(map: BTreeMap<String, String>) -> Self {
        let pairs = map.into_iter();
        Self(
            pairs
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Labels {
    fn from(pairs: [(&str, &str); N]) -> Self {
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        BTreeMap::from(pairs).into()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Labels;

    #[test]
    fn each_key_is_found_wherever_it_stands() {
        let labels = Labels::from([("tier", "web"), ("app", "cart"), ("part-of", "shop")]);
        for (key, value) in [("app", "cart"), ("part-of", "shop"), ("tier", "web")] {
            assert_eq!(labels.get(key), Some(value));
        }
        assert_eq!(labels.get("ap"), None);
        let keys: Vec<&str> = labels.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["app", "part-of", "tier"]);
        assert_eq!(Labels::from(labels.to_map()), labels);
        assert!(Labels::default().is_empty());
    }
}
