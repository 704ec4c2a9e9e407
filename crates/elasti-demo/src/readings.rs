//! The demo's Prometheus: it knows one metric, the requests that reached the pods of each service.

use std::time::Duration;

use elasti_core::schedule::parse_go_duration;
use elasti_fake_cluster::node::Visits;
use elasti_fake_cluster::prometheus::Reading;

/// The metric.
const NAME: &str = "http_requests_total";
/// The same, up to the service's name.
const METRIC: &str = "http_requests_total{service=\"";

/// What a query asks of the metric.
#[derive(Debug, PartialEq)]
struct Asked<'a> {
    service: &'a str,
    window: Duration,
    /// Requests a second, not requests.
    rate: bool,
}

/// `increase` or `rate` of the metric of one service over a window; anything else has no series.
fn parse(query: &str) -> Option<Asked<'_>> {
    let (before, after) = query.split_once(METRIC)?;
    let (service, after) = after.split_once("\"}[")?;
    let (window, _) = after.split_once(']')?;
    let window = parse_go_duration(window).and_then(|time| Duration::try_from(time).ok())?;
    let rate = before.ends_with("rate(");
    let known = rate || before.ends_with("increase(");
    (known && !window.is_zero()).then_some(Asked {
        service,
        window,
        rate,
    })
}

/// The reading of a query, from the requests that reached the nodes.
pub(crate) fn reading(query: &str, nodes: &[Visits]) -> Option<Reading> {
    let Some(asked) = parse(query) else {
        // The operator asks whether the metric has any series.
        if query.starts_with("count(") && query.contains(NAME) {
            return Some(Reading::Value(1.0));
        }
        // What no series answers.
        let is_zero = query.trim_end().ends_with("vector(0)");
        return is_zero.then_some(Reading::Value(0.0));
    };
    let Asked {
        service,
        window,
        rate,
    } = asked;
    let of_service = |pod: &str| deployment_of(pod) == Some(service);
    let requests: usize = { nodes.iter() }
        .map(|node| node.count_within(window, of_service))
        .sum();
    let requests = f64::from(u32::try_from(requests).unwrap_or(u32::MAX));
    Some(Reading::Value(match rate {
        true => requests / window.as_secs_f64(),
        false => requests,
    }))
}

/// Deployments name their pods DEPLOYMENT-HASH-SUFFIX, and a service of the demo has its Deployment's name.
fn deployment_of(pod: &str) -> Option<&str> {
    let (replica_set, _) = pod.rsplit_once('-')?;
    Some(replica_set.rsplit_once('-')?.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Asked, deployment_of, parse};

    #[test]
    fn the_queries_of_the_demo_and_of_the_readme_are_known_and_no_other() {
        let asked = |window, rate| {
            Some(Asked {
                service: "web",
                window: Duration::from_secs(window),
                rate,
            })
        };
        let own = "sum(increase(http_requests_total{service=\"web\"}[1s]))";
        assert_eq!(parse(own), asked(1, false));
        let readme = "sum(rate(http_requests_total{service=\"web\"}[5m])) or vector(0)";
        assert_eq!(parse(readme), asked(300, true));
        for other in [
            "up",
            "http_requests_total{service=\"web\"}",
            "sum(http_requests_total{service=\"web\"}[0s])",
            "max_over_time(http_requests_total{service=\"web\"}[1m])",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_pod_counts_for_the_deployment_that_its_name_begins_with() {
        assert_eq!(deployment_of("web-tr5vrvm4z5-5lk2r"), Some("web"));
        assert_eq!(deployment_of("web-1-tr5vrvm4z5-5lk2r"), Some("web-1"));
        assert_eq!(deployment_of("web"), None);
    }
}
