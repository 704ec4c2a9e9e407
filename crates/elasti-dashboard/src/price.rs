//! The price of an hour, to show savings in money. There is no default: prices differ by cloud and contract.

use std::str::FromStr;

use serde::Serialize;

/// The price of an hour of one CPU core and of one GiB of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    cpu_hour: f64,
    gib_hour: f64,
    currency: String,
}

impl Price {
    /// What so many hours of CPU cores and of GiB of memory cost.
    #[must_use]
    pub fn cost(&self, cpu_hours: f64, gib_hours: f64) -> f64 {
        cpu_hours * self.cpu_hour + gib_hours * self.gib_hour
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
        let wrong = || "write CPU,GIB,CURRENCY, for example 0.03,0.004,EUR".to_owned();
        let mut parts = text.split(',').map(str::trim);
        let mut amount = || {
            let number: f64 = parts.next()?.parse().ok()?;
            (number.is_finite() && number >= 0.0).then_some(number)
        };
        let (cpu_hour, gib_hour) = (amount().ok_or_else(wrong)?, amount().ok_or_else(wrong)?);
        match (parts.next(), parts.next()) {
            (Some(currency), None) if !currency.is_empty() && currency.len() <= 8 => Ok(Self {
                cpu_hour,
                gib_hour,
                currency: currency.to_owned(),
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Price;

    #[test]
    fn a_price_is_two_amounts_and_a_currency() {
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
        ] {
            assert!(wrong.parse::<Price>().is_err(), "{wrong}");
        }
    }
}
