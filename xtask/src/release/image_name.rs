//! The name of the image, as a flag, as the chart writes it and as containerd stores it.

/// A repository of images, with its registry where one is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImageName {
    /// Empty: none is named, and clients use their own default.
    pub(super) registry: String,
    pub(super) repository: String,
}

impl ImageName {
    /// What the chart names in its values.
    pub(super) const DEFAULT: &str = "elasti/elasti";

    /// `None` for what cannot be one: no name, a tag, a digest, or characters that neither registries nor YAML take
    /// without quotes.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if is_host(first) => (first, rest),
            _ => ("", name),
        };
        let in_repository = |letter: char| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || "._-/".contains(letter)
        };
        let in_registry = |letter: char| letter.is_ascii_alphanumeric() || ".:-".contains(letter);
        let usable = repository.split('/').all(|part| !part.is_empty())
            && repository.chars().all(in_repository)
            && registry.chars().all(in_registry);
        usable.then(|| Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
        })
    }

    /// The name in full with its tag, as nodes look for it.
    pub(super) fn reference(&self, tag: &str) -> String {
        let registry = match self.registry.as_str() {
            "" => "docker.io",
            named => named,
        };
        format!("{registry}/{}:{tag}", self.repository)
    }

    /// As pods name it.
    pub(super) fn in_pods(&self, tag: &str) -> String {
        match self.registry.as_str() {
            "" => format!("{}:{tag}", self.repository),
            registry => format!("{registry}/{}:{tag}", self.repository),
        }
    }
}

/// As Docker decides it: a first part with a dot or a port is a registry.
fn is_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost"
}

#[cfg(test)]
mod tests {
    use super::ImageName;

    #[test]
    fn a_first_part_that_is_a_host_is_the_registry() {
        let parts = |name: &str| ImageName::parse(name).map(|one| (one.registry, one.repository));
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(parts("elasti/elasti"), pair("", "elasti/elasti"));
        assert_eq!(
            parts("registry.example.com/team/elasti"),
            pair("registry.example.com", "team/elasti")
        );
        assert_eq!(
            parts("localhost:5000/elasti"),
            pair("localhost:5000", "elasti")
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in [
            "",
            "/elasti",
            "elasti:1",
            "elasti@sha256:0",
            "Elasti",
            "a b",
            "registry.example.com/",
        ] {
            assert_eq!(ImageName::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn nodes_see_the_full_name() {
        let reference = |name: &str| ImageName::parse(name).unwrap().reference("1.2.3");
        assert_eq!(reference("elasti/elasti"), "docker.io/elasti/elasti:1.2.3");
        assert_eq!(
            reference("registry.example.com/elasti"),
            "registry.example.com/elasti:1.2.3"
        );
    }
}
