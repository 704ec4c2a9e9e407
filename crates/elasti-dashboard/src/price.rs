//! The price of an hour, to show savings in money. There is no default: prices differ by cloud and contract.

use std::collections::BTreeMap;
use std::str::FromStr;

use elasti_view::view::Saved;
use serde::Serialize;

/// More than a fleet has kinds of GPUs.
const MAX_RESOURCES: usize = 16;
/// A qualified name of Kubernetes is not longer.
const MAX_NAME_LENGTH: usize = 317;

/// The price of an hour of one CPU core, of one GiB of memory, and of one of each extended resource that is named.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    cpu_hour: f64,
    gib_hour: f64,
    currency: String,
    resource_hours: BTreeMap<String, f64>,
}

impl Price {
    /// What these hours cost; a resource without a price costs nothing.
    #[must_use]
    pub fn cost(&self, saved: &Saved) -> f64 {
        let of_resource = |(name, hours): (&String, &f64)| {
            let price = self.resource_hours.get(name).copied();
            price.unwrap_or(0.0) * hours
        };
        let resources: f64 = saved.resource_hours.iter().map(of_resource).sum();
        saved.cpu_hours * self.cpu_hour + saved.gib_hours * self.gib_hour + resources
    }

    /// The currency, as it was written.
    #[must_use]
    pub fn currency(&self) -> &str {
        &self.currency
    }
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            "write CPU,GIB,CURRENCY, for example 0.03,0.004,EUR, and after it RESOURCE=PRICE for each extended \
             resource, for example nvidia.com/gpu=2.1"
                .to_owned()
        })
    }
}

fn parse(text: &str) -> Option<Price> {
    let mut parts = text.split(',').map(str::trim);
    let (cpu_hour, gib_hour) = (amount(parts.next()?)?, amount(parts.next()?)?);
    let currency = parts.next()?;
    if currency.is_empty() || currency.len() > 8 || currency.contains('/') {
        return None;
    }
    let mut resource_hours = BTreeMap::new();
    for part in parts {
        let (name, price) = part.split_once('=')?;
        // Extended resources have a domain; without one it is a slip.
        let is_name = name.contains('/') && name.len() <= MAX_NAME_LENGTH;
        let is_new = resource_hours
            .insert(name.to_owned(), amount(price)?)
            .is_none();
        if !is_name || !is_new || resource_hours.len() > MAX_RESOURCES {
            return None;
        }
    }
    Some(Price {
        cpu_hour,
        gib_hour,
        currency: currency.to_owned(),
        resource_hours,
    })
}

fn amount(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use elasti_view::view::Saved;

    use super::Price;

    #[test]
    fn an_extended_resource_has_a_price_of_its_own() {
        let price: Price = "0.03,0.004,EUR,nvidia.com/gpu=2.1,example.com/fpga=1"
            .parse()
            .unwrap();
        let hours = [("nvidia.com/gpu", 10.0), ("example.com/nic", 7.0)];
        let saved = Saved {
            cpu_hours: 100.0,
            gib_hours: 1000.0,
            resource_hours: hours.map(|(name, hours)| (name.to_owned(), hours)).into(),
            ..Saved::default()
        };
        assert!((price.cost(&saved) - (3.0 + 4.0 + 21.0)).abs() < 1e-9);
    }

    #[test]
    fn a_price_is_two_amounts_a_currency_and_resources() {
        let price: Price = "0.03, 0.004, EUR".parse().unwrap();
        assert_eq!((price.cpu_hour, price.gib_hour), (0.03, 0.004));
        for wrong in [
            "",
            "1",
            "1,2",
            "1,2,",
            "-1,2,EUR",
            "NaN,1,EUR",
            "1,2,EUR,3",
            "a,b,c",
            "1,2,nvidia.com/gpu=3",
            "1,2,EUR,",
            "1,2,EUR,gpu=3",
            "1,2,EUR,nvidia.com/gpu",
            "1,2,EUR,nvidia.com/gpu=-1",
            "1,2,EUR,nvidia.com/gpu=1,nvidia.com/gpu=2",
        ] {
            assert!(wrong.parse::<Price>().is_err(), "{wrong}");
        }
    }
}
