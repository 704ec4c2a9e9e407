//! The few objects of one Service by their names, without the half kilobyte that the smallest map takes for each Service.

use std::sync::Arc;

/// Objects in the order of their names.
#[derive(Debug)]
pub(crate) struct ByName<T>(Vec<(Arc<str>, Arc<T>)>);

/// Below that there is room for one more at a time.
const FEW: usize = 4;

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ByName<T> {
    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(one, _)| (**one).cmp(name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<T>> {
        let found = self.0.get(self.find(name).ok()?);
        found.map(|(_, object)| object)
    }

    pub(crate) fn insert(&mut self, name: Arc<str>, object: Arc<T>) {
        match self.find(&name) {
            Ok(at) => {
                if let Some((_, before)) = self.0.get_mut(at) {
                    *before = object;
                }
            }
            Err(at) => {
                if self.0.len() < FEW {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (name, object));
            }
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Ok(at) = self.find(name) {
            self.0.remove(at);
        }
    }
}

impl<'a, T> IntoIterator for &'a ByName<T> {
    type Item = &'a (Arc<str>, Arc<T>);
    type IntoIter = std::slice::Iter<'a, (Arc<str>, Arc<T>)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T> IntoIterator for ByName<T> {
    type Item = (Arc<str>, Arc<T>);
    type IntoIter = std::vec::IntoIter<(Arc<str>, Arc<T>)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_object_of_a_name_counts_until_it_is_removed() {
        let mut all = ByName::default();
        for (name, number) in [("c", 1), ("a", 2), ("d", 3), ("b", 4), ("e", 5), ("a", 6)] {
            all.insert(name.into(), Arc::new(number));
        }
        all.remove("d");
        all.remove("missing");
        let found: Vec<(&str, i32)> = { &all }
            .into_iter()
            .map(|(name, number)| (&**name, **number))
            .collect();
        assert_eq!(found, [("a", 6), ("b", 4), ("c", 1), ("e", 5)]);
        assert_eq!(all.get("b").map(|number| **number), Some(4));
        assert!(all.get("d").is_none());
    }
}
