//! Which requests are answered while asleep.

use proptest::prelude::*;

use super::*;

fn rule() -> ProbeResponse {
    answering(200)
}

fn answering(status: u16) -> ProbeResponse {
    ProbeResponse {
        path: None,
        headers: vec![],
        query_params: vec![],
        method: None,
        response: ProbeAnswer { status, body: None },
    }
}

fn path(type_: PathMatchType, value: &str) -> ProbeResponse {
    let value = value.into();
    ProbeResponse {
        path: Some(PathMatch { type_, value }),
        ..rule()
    }
}

fn prefix(value: &str) -> ProbeResponse {
    path(PathMatchType::PathPrefix, value)
}

fn exact(value: &str) -> ProbeResponse {
    path(PathMatchType::Exact, value)
}

fn regex(value: &str) -> ProbeResponse {
    path(PathMatchType::RegularExpression, value)
}

fn header(rule: ProbeResponse, type_: ValueMatchType, name: &str, value: &str) -> ProbeResponse {
    let mut rule = rule;
    rule.headers.push(HeaderMatch {
        name: name.into(),
        type_,
        value: value.into(),
    });
    rule
}

fn param(type_: ValueMatchType, name: &str, value: &str) -> ProbeResponse {
    let mut rule = rule();
    rule.query_params.push(QueryParamMatch {
        name: name.into(),
        type_,
        value: value.into(),
    });
    rule
}

fn method(method: Method) -> ProbeResponse {
    ProbeResponse {
        method: Some(method),
        ..rule()
    }
}

/// Sends `GET /path?query` with headers as `name: value`.
fn status(rules: &[ProbeResponse], line: &str, headers: &[&str]) -> Option<u16> {
    let (method, target) = line.split_once(' ').unwrap();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let headers: Vec<(&str, &[u8])> = headers
        .iter()
        .map(|h| h.split_once(": ").unwrap())
        .map(|(name, value)| (name, value.as_bytes()))
        .collect();
    let request = ProbeRequest {
        method,
        path,
        query,
        headers: &headers,
    };
    let (rules, _) = ProbeRules::compile(rules);
    rules.answer(&request).map(|answer| answer.status)
}

fn check(table: Vec<(ProbeResponse, &str, &[&str], bool)>) {
    for (rule, line, headers, expected) in table {
        let matched = status(std::slice::from_ref(&rule), line, headers).is_some();
        assert_eq!(matched, expected, "{line} {headers:?} by {rule:?}");
    }
}

#[test]
fn paths_are_compared_by_whole_elements_whole_values_or_expressions() {
    check(vec![
        (rule(), "GET /", &[], true),
        (rule(), "GET /any/thing", &[], true),
        (rule(), "OPTIONS *", &[], false),
        (rule(), "CONNECT ", &[], false),
        (prefix("/"), "GET /abc", &[], true),
        (prefix(""), "GET /abc", &[], true),
        (prefix("/abc"), "GET /abc", &[], true),
        (prefix("/abc"), "GET /abc/", &[], true),
        (prefix("/abc"), "GET /abc/d", &[], true),
        (prefix("/abc"), "GET /abcd", &[], false),
        (prefix("/abc"), "GET /ab", &[], false),
        (prefix("/abc"), "GET /ABC", &[], false),
        (prefix("/abc"), "GET /x/abc", &[], false),
        (prefix("/abc/"), "GET /abc", &[], true),
        (prefix("/abc/"), "GET /abc/d", &[], true),
        (prefix("/abc/"), "GET /abcd", &[], false),
        (prefix("/a/b"), "GET /a/b?c=/d", &[], true),
        (prefix("abc"), "GET /abc", &[], false),
        (prefix("/a b"), "GET /a%20b/c", &[], true),
        (prefix("/a b"), "GET /a+b", &[], false),
        (exact("/abc"), "GET /abc", &[], true),
        (exact("/abc"), "GET /abc?x=1", &[], true),
        (exact("/abc"), "GET /abc/", &[], false),
        (exact("/abc"), "GET /abc/d", &[], false),
        (exact("/abc"), "GET /a%62c", &[], true),
        (exact("/100%"), "GET /100%", &[], true),
        (exact("/"), "GET /", &[], true),
        (exact(""), "GET /", &[], false),
        (regex("^/healthz?$"), "GET /health", &[], true),
        (regex("^/healthz?$"), "GET /healthz", &[], true),
        (regex("^/healthz?$"), "GET /healthzz", &[], false),
        (regex("health"), "GET /api/healthy/x", &[], true),
        (regex("/(live|ready)$"), "GET /a/ready", &[], true),
        (regex("/(live|ready)$"), "GET /a/ready/b", &[], false),
        (regex("(?i)^/PING$"), "GET /ping", &[], true),
        (regex(r"^/\w+/\w+/\w+/\w+$"), "GET /a/b/c/d", &[], true),
        (regex(r"^/\w+$"), "GET /é", &[], false),
        (regex(r"^/\pL$"), "GET /é", &[], true),
        (regex("^/[é]$"), "GET /%C3%A9", &[], true),
        (regex("("), "GET /(", &[], false),
    ]);
}

#[test]
fn headers_are_compared_by_name_in_any_case_and_by_value_as_it_is() {
    use ValueMatchType::{Exact, RegularExpression};
    let check_is_1 = || header(rule(), Exact, "X-Check", "1");
    let agent = || {
        header(
            rule(),
            RegularExpression,
            "user-agent",
            "kube-probe|GoogleHC",
        )
    };
    let both = || header(agent(), Exact, "User-Agent", "kube-probe/1.33");
    check(vec![
        (check_is_1(), "GET /", &["X-Check: 1"], true),
        (check_is_1(), "GET /", &["x-check: 1"], true),
        (check_is_1(), "GET /", &["X-CHECK: 1"], true),
        (check_is_1(), "GET /", &["X-Check: 11"], false),
        (check_is_1(), "GET /", &["X-Checks: 1"], false),
        (check_is_1(), "GET /", &[], false),
        (check_is_1(), "GET /", &["X-Check: 2", "X-Check: 1"], true),
        (check_is_1(), "GET /", &["X-Check: 1, 2"], false),
        (
            header(rule(), Exact, "X", "a, b"),
            "GET /",
            &["X: a", "x: b"],
            true,
        ),
        (
            header(rule(), Exact, "X", "b, a"),
            "GET /",
            &["X: a", "x: b"],
            false,
        ),
        (header(rule(), Exact, " X ", "a"), "GET /", &["X: a"], true),
        (header(rule(), Exact, "X", "A"), "GET /", &["X: a"], false),
        (header(rule(), Exact, " ", "a"), "GET /", &["X: a"], false),
        (agent(), "GET /", &["User-Agent: kube-probe/1.33"], true),
        (agent(), "GET /", &["User-Agent: curl/8"], false),
        (both(), "GET /", &["User-Agent: kube-probe/1.33"], true),
        (both(), "GET /", &["User-Agent: kube-probe/1.34"], false),
    ]);
}

#[test]
fn query_parameters_are_decoded_and_the_first_of_a_name_counts() {
    use ValueMatchType::{Exact, RegularExpression};
    let k_is_v = || param(Exact, "k", "v");
    check(vec![
        (k_is_v(), "GET /?k=v", &[], true),
        (k_is_v(), "GET /?a=b&k=v&c", &[], true),
        (k_is_v(), "GET /?K=v", &[], false),
        (k_is_v(), "GET /?k=V", &[], false),
        (k_is_v(), "GET /?kk=v", &[], false),
        (k_is_v(), "GET /", &[], false),
        (k_is_v(), "GET /?", &[], false),
        (k_is_v(), "GET /?k=v&k=w", &[], true),
        (k_is_v(), "GET /?k=w&k=v", &[], false),
        (k_is_v(), "GET /?%6b=%76", &[], true),
        (k_is_v(), "GET /?k=%zz&k=v", &[], true),
        (param(Exact, "k", ""), "GET /?k", &[], true),
        (param(Exact, "k", ""), "GET /?k=", &[], true),
        (param(Exact, "k", "a b"), "GET /?k=a+b", &[], true),
        (param(Exact, "k", "a b"), "GET /?k=a%20b", &[], true),
        (param(Exact, "k", "a+b"), "GET /?k=a%2Bb", &[], true),
        (param(Exact, "k", "a=b"), "GET /?k=a=b", &[], true),
        (param(Exact, "k", "%"), "GET /?k=%2", &[], false),
        (param(Exact, "", "v"), "GET /?=v", &[], false),
        (
            param(RegularExpression, "k", "^v+$"),
            "GET /?k=vvv",
            &[],
            true,
        ),
        (
            param(RegularExpression, "k", "^v+$"),
            "GET /?k=vw",
            &[],
            false,
        ),
        (
            param(RegularExpression, "k", "é"),
            "GET /?k=caf%C3%A9",
            &[],
            true,
        ),
    ]);
}

#[test]
fn methods_are_compared_exactly() {
    check(vec![
        (method(Method::Get), "GET /", &[], true),
        (method(Method::Get), "HEAD /", &[], false),
        (method(Method::Get), "get /", &[], false),
        (method(Method::Head), "HEAD /", &[], true),
        (method(Method::Options), "OPTIONS /", &[], true),
        (rule(), "BREW /", &[], true),
    ]);
}

#[test]
fn all_matches_of_a_rule_must_hold() {
    let mut all = header(prefix("/probe"), ValueMatchType::Exact, "X-Check", "1");
    all.query_params = param(ValueMatchType::Exact, "k", "v").query_params;
    all.method = Some(Method::Get);
    check(vec![
        (all.clone(), "GET /probe?k=v", &["X-Check: 1"], true),
        (all.clone(), "POST /probe?k=v", &["X-Check: 1"], false),
        (all.clone(), "GET /other?k=v", &["X-Check: 1"], false),
        (all.clone(), "GET /probe?k=w", &["X-Check: 1"], false),
        (all, "GET /probe?k=v", &[], false),
    ]);
}

#[test]
fn the_first_rule_that_matches_answers() {
    let special = ProbeResponse {
        response: ProbeAnswer {
            status: 204,
            body: None,
        },
        ..exact("/a")
    };
    let rules = [special, prefix("/a"), answering(404)];
    assert_eq!(status(&rules, "GET /a", &[]), Some(204));
    assert_eq!(status(&rules, "GET /a/b", &[]), Some(200));
    assert_eq!(status(&rules, "GET /c", &[]), Some(404));
    assert_eq!(status(&[], "GET /a", &[]), None);
}

#[test]
fn an_invalid_rule_is_reported_and_the_others_still_answer() {
    let large = r"(\pL{1000}){1000}";
    let rules = [
        regex("("),
        prefix("health"),
        header(rule(), ValueMatchType::Exact, "", "x"),
        regex(large),
        answering(99),
        exact("/ok"),
    ];
    let (compiled, invalid) = ProbeRules::compile(&rules);
    let sentences: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    assert_eq!(
        sentences,
        [
            "probeResponse[0] matches nothing: its regular expression \"(\" is invalid (unclosed group).",
            "probeResponse[1] matches nothing: its path \"health\" does not start with a slash.",
            "probeResponse[2] matches nothing: one of its matches has no name.",
            "probeResponse[3] matches nothing: its regular expression \"(\\\\pL{1000}){1000}\" needs too much memory.",
            "probeResponse[4] matches nothing: 99 is not a valid response status.",
        ]
    );
    assert!(!compiled.is_empty());
    assert_eq!(status(&rules, "GET /ok", &[]), Some(200));
    assert_eq!(status(&rules, "GET /health", &[]), None);
}

#[test]
fn rules_that_all_fail_are_as_good_as_none() {
    let (compiled, invalid) = ProbeRules::compile(&[regex("(")]);
    assert!(compiled.is_empty());
    assert_eq!(invalid.len(), 1);
}

#[test]
fn usual_expressions_fit_and_their_number_is_bounded() {
    let usual = [
        r"^/[\w-]+/(healthz?|livez|readyz)/?$",
        r"^/api/v\d+/[^/]+/status$",
        r"(?i)googlebot|bingbot|yandex|kube-probe/\d+\.\d+",
        r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    ];
    for expression in usual {
        let (_, invalid) = ProbeRules::compile(&[regex(expression)]);
        assert_eq!(invalid, vec![], "{expression}");
    }
    let many = vec![regex("x"); MAX_EXPRESSIONS + 1];
    let (_, invalid) = ProbeRules::compile(&many);
    let one_too_many = InvalidRule {
        rule: MAX_EXPRESSIONS,
        error: RuleError::TooManyExpressions,
    };
    assert_eq!(invalid, vec![one_too_many]);
}

#[test]
fn header_bytes_that_are_not_text_match_no_text() {
    let (rules, _) = ProbeRules::compile(&[header(rule(), ValueMatchType::Exact, "X", "a")]);
    let request = ProbeRequest {
        method: "GET",
        path: "/",
        query: None,
        headers: &[("X", b"\xffa")],
    };
    assert_eq!(rules.answer(&request), None);
}

/// The words of Gateway API: split by slashes, compare element by element, a trailing slash does not count.
fn prefix_by_elements(prefix: &str, path: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let mut elements = path.split('/');
    prefix
        .split('/')
        .all(|wanted| elements.next() == Some(wanted))
}

proptest! {
    #[test]
    fn a_prefix_is_compared_element_by_element(value in "/[ab/]{0,6}", target in "/[ab/]{0,8}") {
        let matched = status(&[prefix(&value)], &format!("GET {target}"), &[]).is_some();
        prop_assert_eq!(matched, prefix_by_elements(&value, &target));
    }

    #[test]
    fn nothing_that_a_client_sends_is_too_strange_to_compare(
        target in "[ -~é%&=+?]{0,40}",
        value in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let rules = [
            header(regex("x$"), ValueMatchType::RegularExpression, "X", "y"),
            param(ValueMatchType::Exact, "k", "v"),
        ];
        let (rules, _) = ProbeRules::compile(&rules);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let request = ProbeRequest {
            method: "GET",
            path,
            query: Some(query),
            headers: &[("x", &value)],
        };
        let _ = rules.answer(&request);
    }
}

/// One service may have 64, and the chart gives a resolver 512 MiB.
#[test]
fn without_a_limit_of_their_size_the_expressions_of_one_service_fill_a_resolver() {
    let bomb = "(x{0,900}){0,500}";
    assert!(compile(bomb, false, MAX_EXPRESSION_BYTES).is_err());
    let least = (512 << 20) / MAX_EXPRESSIONS;
    assert!(
        compile(bomb, false, least).is_err(),
        "it needs more than that"
    );
    assert!(compile(bomb, false, 16 * least).is_ok(), "and is compiled");
}
