//! Sums by service, by namespace, by a label or by month.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::str::FromStr;

use elasti_api::ElastiService;
use elasti_dashboard::Price;
use elasti_view::view::{Month, Saved, View};
use kube::ResourceExt as _;
use serde::Serialize;

/// What stands for the value of a label that a service does not have, as in kubectl.
const NO_LABEL: &str = "<none>";

/// What makes a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum By {
    Service,
    Namespace,
    /// The value of the label with this key.
    Label(String),
    /// The calendar month of UTC.
    Month,
}

/// A group and its sums. What does not name it is `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Group {
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    /// The value of the label; absent too for the services without it.
    pub(super) label: Option<String>,
    /// For example `2026-03`.
    pub(super) month: Option<String>,
    /// How many services are in the sums.
    pub(super) services: usize,
    pub(super) asleep_seconds: i64,
    pub(super) saved: Saved,
    /// Absent without a price.
    pub(super) cost: Option<f64>,
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('=')) {
            ("service", _) => Ok(Self::Service),
            ("namespace", _) => Ok(Self::Namespace),
            ("month", _) => Ok(Self::Month),
            (_, Some(("label", key))) if !key.is_empty() => Ok(Self::Label(key.to_owned())),
            _ => Err(
                "write service, namespace, month or label=KEY, for example label=team".to_owned(),
            ),
        }
    }
}

impl By {
    /// The headings of the columns that name a group.
    pub(super) fn headings(&self) -> Vec<String> {
        let headings: &[&str] = match self {
            Self::Service => &["NAMESPACE", "NAME"],
            Self::Namespace => &["NAMESPACE", "SERVICES"],
            Self::Month => &["MONTH", "SERVICES"],
            Self::Label(key) => return vec![key.clone(), "SERVICES".to_owned()],
        };
        headings.iter().map(|&heading| heading.to_owned()).collect()
    }

    /// The cells that name a group.
    pub(super) fn cells(&self, group: &Group) -> Vec<String> {
        let text = |name: &Option<String>| name.clone().unwrap_or_default();
        match self {
            Self::Service => vec![text(&group.namespace), text(&group.name)],
            Self::Namespace => vec![text(&group.namespace), group.services.to_string()],
            Self::Month => vec![text(&group.month), group.services.to_string()],
            Self::Label(_) => {
                let value = group.label.clone().unwrap_or_else(|| NO_LABEL.to_owned());
                vec![value, group.services.to_string()]
            }
        }
    }

    /// The same cells of the sum of all groups.
    pub(super) fn total_cells(&self, total: &Group) -> Vec<String> {
        let second = match self {
            Self::Service => String::new(),
            Self::Namespace | Self::Label(_) | Self::Month => total.services.to_string(),
        };
        vec!["total".to_owned(), second]
    }

    /// What a service adds to which groups.
    fn parts(&self, me: &ElastiService, view: &View) -> Vec<Group> {
        if *self == Self::Month {
            let months = { view.saved_calendar.iter() }.flat_map(|calendar| &calendar.months);
            return months.map(Group::of_month).collect();
        }
        let part = Group {
            services: 1,
            asleep_seconds: view.asleep.seconds,
            saved: view.saved.clone(),
            ..self.group(me, view)
        };
        vec![part]
    }

    /// The group of a service, with no sums yet.
    fn group(&self, me: &ElastiService, view: &View) -> Group {
        let namespace = Some(view.namespace.clone());
        match self {
            Self::Service => Group {
                namespace,
                name: Some(view.name.clone()),
                ..Group::default()
            },
            Self::Namespace => Group {
                namespace,
                ..Group::default()
            },
            Self::Month => Group::default(),
            Self::Label(key) => Group {
                label: me.labels().get(key).cloned(),
                ..Group::default()
            },
        }
    }
}

impl Group {
    /// The sum of all groups, of so many services.
    pub(super) fn total(groups: &[Self], services: usize, price: Option<&Price>) -> Self {
        let mut total = Self::default();
        for group in groups {
            total.add(group);
        }
        total.services = services;
        total.priced(price)
    }

    fn of_month(month: &Month) -> Self {
        Self {
            month: Some(month.month.clone()),
            services: 1,
            asleep_seconds: month.asleep_seconds,
            saved: month.saved.clone(),
            ..Self::default()
        }
    }

    fn add(&mut self, more: &Self) {
        self.services += more.services;
        self.asleep_seconds = self.asleep_seconds.saturating_add(more.asleep_seconds);
        self.saved = std::mem::take(&mut self.saved) + &more.saved;
    }

    fn priced(mut self, price: Option<&Price>) -> Self {
        self.cost = price.map(|price| price.cost(&self.saved));
        self
    }
}

/// Each group once, in the order of its name; services without the label come last.
pub(super) fn groups(
    by: &By,
    services: &[(&ElastiService, View)],
    price: Option<&Price>,
) -> Vec<Group> {
    let mut groups: BTreeMap<_, Group> = BTreeMap::new();
    let parts = { services.iter() }.flat_map(|(me, view)| by.parts(me, view));
    for part in parts {
        let names = [&part.namespace, &part.name, &part.label, &part.month].map(Clone::clone);
        match groups.entry((part.label.is_none(), names)) {
            Entry::Vacant(place) => {
                place.insert(part);
            }
            Entry::Occupied(mut group) => group.get_mut().add(&part),
        }
    }
    { groups.into_values() }
        .map(|group| group.priced(price))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::By;

    #[test]
    fn what_makes_a_group_is_a_service_a_namespace_a_month_or_a_label() {
        let label = |key: &str| Ok(By::Label(key.to_owned()));
        assert_eq!("service".parse(), Ok(By::Service));
        assert_eq!("namespace".parse(), Ok(By::Namespace));
        assert_eq!("month".parse(), Ok(By::Month));
        assert_eq!(
            "label=app.kubernetes.io/part-of".parse(),
            label("app.kubernetes.io/part-of")
        );
        for wrong in ["", "label", "label=", "team", "service=web"] {
            assert!(wrong.parse::<By>().is_err(), "{wrong}");
        }
    }
}
