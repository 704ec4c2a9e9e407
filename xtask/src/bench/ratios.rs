//! From rounds to the table: medians, and medians of the ratios within each round.
//! It never compares figures of different rounds: the machine may have been busier in one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::load::Load;
use super::processes::{BACKEND, ELASTI_HTTP, ELASTI_TCP, HAPROXY_HTTP, HAPROXY_TCP};

/// A way from the client to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Direct,
    HaproxyHttp,
    ElastiHttp,
    HaproxyTcp,
    ElastiTcp,
}

impl Way {
    pub(crate) const ALL: [Self; 5] = [
        Self::Direct,
        Self::HaproxyHttp,
        Self::ElastiHttp,
        Self::HaproxyTcp,
        Self::ElastiTcp,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::HaproxyHttp => "haproxy-http",
            Self::ElastiHttp => "elasti-http",
            Self::HaproxyTcp => "haproxy-tcp",
            Self::ElastiTcp => "elasti-tcp",
        }
    }

    pub(crate) fn address(self) -> String {
        match self {
            Self::Direct => BACKEND,
            Self::HaproxyHttp => HAPROXY_HTTP,
            Self::ElastiHttp => ELASTI_HTTP,
            Self::HaproxyTcp => HAPROXY_TCP,
            Self::ElastiTcp => ELASTI_TCP,
        }
        .to_owned()
    }
}

/// What one way showed in one round.
#[derive(Clone, Copy, Debug)]
struct Shown {
    per_second: f64,
    cpu_micros: f64,
    p50_micros: f64,
    p99_micros: f64,
}

/// One round: each way once.
#[derive(Debug, Default)]
pub(crate) struct Round(BTreeMap<Way, Shown>);

impl Round {
    #[allow(
        clippy::cast_precision_loss,
        reason = "counts of one run are far below 2^52"
    )]
    pub(crate) fn add(&mut self, way: Way, load: Load, cpu_micros: u64) {
        let Load {
            requests,
            micros,
            p50_micros,
            p99_micros,
        } = load;
        let shown = Shown {
            per_second: requests as f64 * 1e6 / micros as f64,
            cpu_micros: cpu_micros as f64 / requests as f64,
            p50_micros: p50_micros as f64,
            p99_micros: p99_micros as f64,
        };
        self.0.insert(way, shown);
    }
}

/// Every figure of every round.
pub(crate) fn csv(rounds: &[Round]) -> String {
    let mut text =
        "round,way,requests_per_second,cpu_micros_per_request,p50_micros,p99_micros\n".to_owned();
    for (number, round) in rounds.iter().enumerate() {
        for (way, shown) in &round.0 {
            let Shown {
                per_second,
                cpu_micros,
                p50_micros,
                p99_micros,
            } = shown;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{},{},{per_second:.0},{cpu_micros:.2},{p50_micros:.0},{p99_micros:.0}",
                number + 1,
                way.word()
            );
        }
    }
    text
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
    if values.len().is_multiple_of(2) {
        let lower = values.len().checked_sub(2).map(|even| even / 2);
        let lower = lower.and_then(|at| values.get(at)).copied();
        return f64::midpoint(lower.unwrap_or(f64::NAN), upper);
    }
    upper
}

/// The median over rounds of what `figure` makes of two ways in one round.
fn between(rounds: &[Round], one: Way, other: Way, figure: impl Fn(Shown, Shown) -> f64) -> f64 {
    let pairs = rounds
        .iter()
        .filter_map(|round| Some(figure(*round.0.get(&one)?, *round.0.get(&other)?)));
    median(pairs.collect())
}

/// The table, with the goals beside the ratios.
pub(crate) fn table(rounds: &[Round]) -> String {
    let mut text = format!(
        "{:<14}{:>12}{:>18}{:>14}{:>14}\n",
        "way", "requests/s", "CPU us/request", "added p50 us", "added p99 us"
    );
    for way in Way::ALL {
        let of = |figure: fn(Shown, Shown) -> f64| between(rounds, way, Way::Direct, figure);
        let cpu = if way == Way::Direct {
            "-".to_owned()
        } else {
            format!("{:.1}", of(|own, _| own.cpu_micros))
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<14}{:>12.0}{cpu:>18}{:>14.0}{:>14.0}",
            way.word(),
            of(|own, _| own.per_second),
            of(|own, direct| own.p50_micros - direct.p50_micros),
            of(|own, direct| own.p99_micros - direct.p99_micros),
        );
    }
    let _ = writeln!(
        text,
        "\nratio to HAProxy       HTTP      goal     TCP      goal"
    );
    let ratio = |figure: fn(Shown, Shown) -> f64| {
        (
            between(rounds, Way::ElastiHttp, Way::HaproxyHttp, figure),
            between(rounds, Way::ElastiTcp, Way::HaproxyTcp, figure),
        )
    };
    let (http, tcp) = ratio(|own, peer| own.cpu_micros / peer.cpu_micros);
    let _ = writeln!(
        text,
        "CPU per request  {http:>10.2}  <= 1.20{tcp:>8.2}   <= 1.10"
    );
    let (http, tcp) = ratio(|own, peer| own.per_second / peer.per_second);
    let _ = writeln!(
        text,
        "requests/s       {http:>10.2}  >= 0.95{tcp:>8.2}   >= 0.95"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp, reason = "these are exact")]
    fn ratios_are_taken_within_a_round() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        let load = |requests| Load {
            requests,
            micros: 1_000_000,
            p50_micros: 10,
            p99_micros: 20,
        };
        let mut rounds = Vec::new();
        for busy in [1, 5, 10] {
            let mut round = Round::default();
            round.add(Way::HaproxyHttp, load(1000 / busy), 40_000);
            round.add(Way::ElastiHttp, load(500 / busy), 20_000);
            rounds.push(round);
        }
        let rate = between(&rounds, Way::ElastiHttp, Way::HaproxyHttp, |own, peer| {
            own.per_second / peer.per_second
        });
        assert_eq!(rate, 0.5);
    }
}
