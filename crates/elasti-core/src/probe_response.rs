//! Requests that are answered while a service is asleep, without waking it: health checks and bots.
//! It never answers anything by a rule that cannot be read: such a rule matches nothing and is named.

use std::borrow::Cow;

use elasti_api::{
    HeaderMatch, Method, PathMatch, PathMatchType, ProbeAnswer, ProbeResponse, QueryParamMatch,
    ValueMatchType,
};
use regex::bytes::{Regex, RegexBuilder};

/// Most bytes of one compiled regular expression, and again of its cache.
///
/// A usual expression, such as `^/api/v\d+/[^/]+/status$`, needs less than 3 KiB; one with a Unicode class about 50 KiB.
const EXPRESSION_BYTES: usize = 128 * 1024;

/// Most regular expressions of one service: 64 x 2 x 128 KiB = 16 MiB at the very worst.
/// The contract's 32 rules may have two each; its limits alone (32 x 33 matches) would allow 264 MiB.
const EXPRESSIONS: usize = 64;

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest<'a> {
    /// As it stands in the request.
    pub method: &'a str,
    /// Without the query, still percent-encoded.
    pub path: &'a str,
    /// Without the question mark, still percent-encoded.
    pub query: Option<&'a str>,
    /// Every header line: name in any case, value.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// The rules of one service, ready to use.
#[derive(Clone, Debug, Default)]
pub struct ProbeRules {
    rules: Vec<Rule>,
}

/// A rule that matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("probeResponse[{rule}] matches nothing: {fault}.")]
pub struct InvalidRule {
    /// Its place in the spec, from 0.
    pub rule: usize,
    /// What is wrong with it.
    pub fault: RuleFault,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// No request has such a path.
    #[error("its path {0:?} does not start with a slash")]
    RelativePath(String),
    /// A header or query parameter has no name.
    #[error("one of its matches has no name")]
    NoName,
    /// A regular expression cannot be read.
    #[error("its regular expression {expression:?} cannot be read ({problem})")]
    Expression {
        /// The expression.
        expression: String,
        /// What the parser says.
        problem: String,
    },
    /// A regular expression is too large.
    #[error("its regular expression {0:?} needs too much memory")]
    ExpressionTooLarge(String),
    /// The service has too many regular expressions.
    #[error("the service has more than {EXPRESSIONS} regular expressions")]
    TooManyExpressions,
    /// HTTP has no such status for an answer.
    #[error("{0} is not a status that an answer can have")]
    Status(u16),
}

impl ProbeRules {
    /// Makes rules ready to use, and names those that cannot be.
    #[must_use]
    pub fn compile(rules: &[ProbeResponse]) -> (Self, Vec<InvalidRule>) {
        let mut compiler = Compiler { expressions: 0 };
        let mut compiled = Self::default();
        let mut invalid = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            match compiler.rule(rule) {
                Ok(rule) => compiled.rules.push(rule),
                Err(fault) => invalid.push(InvalidRule { rule: index, fault }),
            }
        }
        (compiled, invalid)
    }

    /// The answer of the first rule that matches; `None` means that the request wakes the service.
    #[must_use]
    pub fn answer(&self, request: &ProbeRequest<'_>) -> Option<&ProbeAnswer> {
        if self.is_empty() {
            return None;
        }
        let path = percent_decoded(request.path).unwrap_or(Cow::Borrowed(request.path));
        self.rules
            .iter()
            .find(|rule| rule.matches(request, &path))
            .map(|rule| &rule.answer)
    }

    /// There is nothing to match, so no request needs to be read before it waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

#[derive(Clone, Debug)]
struct Rule {
    method: Option<Method>,
    path: PathTest,
    headers: Vec<(String, ValueTest)>,
    query_params: Vec<(String, ValueTest)>,
    answer: ProbeAnswer,
}

impl Rule {
    /// All its matches hold. Two matches on one name must both hold, as with KubeElasti;
    /// Gateway API would ignore the second, and thus answer requests that the rule excludes.
    fn matches(&self, request: &ProbeRequest<'_>, path: &str) -> bool {
        let header = |(name, test): &(String, ValueTest)| header_matches(request, name, test);
        let param = |(name, test): &(String, ValueTest)| {
            query_param(request.query.unwrap_or_default(), name)
                .is_some_and(|value| test.matches(&value))
        };
        self.method.is_none_or(|m| m.as_str() == request.method)
            && self.path.matches(path)
            && self.headers.iter().all(header)
            && self.query_params.iter().all(param)
    }
}

#[derive(Clone, Debug)]
enum PathTest {
    Exact(String),
    /// Without a trailing slash.
    Prefix(String),
    Expression(Regex),
}

impl PathTest {
    /// Compares the decoded path, as KubeElasti does.
    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(value) => path == value,
            Self::Prefix(prefix) => {
                let rest = path.strip_prefix(prefix.as_str());
                path.starts_with('/') && rest.is_some_and(|r| r.is_empty() || r.starts_with('/'))
            }
            Self::Expression(expression) => expression.is_match(path.as_bytes()),
        }
    }
}

#[derive(Clone, Debug)]
enum ValueTest {
    Exact(String),
    Expression(Regex),
}

impl ValueTest {
    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(wanted) => value == wanted,
            Self::Expression(expression) => expression.is_match(value.as_bytes()),
        }
    }
}

/// Where a header has several lines, one of them matches (as with KubeElasti), or all of them joined by commas,
/// which RFC 9110 (5.3) calls the same thing. Gateway API leaves the choice to the implementation.
fn header_matches(request: &ProbeRequest<'_>, name: &str, test: &ValueTest) -> bool {
    let lines: Vec<Cow<'_, str>> = request
        .headers
        .iter()
        .filter(|(header, _)| header.eq_ignore_ascii_case(name))
        .map(|(_, value)| String::from_utf8_lossy(value))
        .collect();
    lines.iter().any(|line| test.matches(line))
        || (lines.len() > 1 && test.matches(&lines.join(", ")))
}

/// The first value of a query parameter, decoded, as Gateway API recommends (KubeElasti looks at all of them).
/// A pair that cannot be decoded is not there.
fn query_param<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query.split('&').find_map(|pair| {
        let (raw_name, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = form_decoded(raw_value)?;
        (form_decoded(raw_name)? == name).then_some(value)
    })
}

/// Percent-decoding in which `+` stands for a space.
fn form_decoded(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return percent_decoded(&spaced).map(|decoded| Cow::Owned(decoded.into_owned()));
    }
    percent_decoded(text)
}

/// Percent-decoding; `None` if a percent sign is not followed by two hex digits.
/// Bytes that are not UTF-8 become U+FFFD, as in Go's regular expressions.
fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?,
            plain => plain,
        };
        decoded.push(byte);
    }
    Some(Cow::Owned(String::from_utf8_lossy(&decoded).into_owned()))
}

fn hex_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// Compiles one service's rules and counts its regular expressions.
struct Compiler {
    expressions: usize,
}

impl Compiler {
    fn rule(&mut self, rule: &ProbeResponse) -> Result<Rule, RuleFault> {
        let ProbeResponse {
            path,
            headers,
            query_params,
            method,
            response,
        } = rule;
        if !(200..=599).contains(&response.status) {
            return Err(RuleFault::Status(response.status));
        }
        let path = self.path(path.as_ref())?;
        let headers = headers.iter().map(|header| {
            let HeaderMatch { name, type_, value } = header;
            self.named(name.trim(), *type_, value)
        });
        let headers = headers.collect::<Result<_, _>>()?;
        let query_params = query_params.iter().map(|param| {
            let QueryParamMatch { name, type_, value } = param;
            self.named(name, *type_, value)
        });
        Ok(Rule {
            method: *method,
            path,
            headers,
            query_params: query_params.collect::<Result<_, _>>()?,
            answer: response.clone(),
        })
    }

    /// A missing path, like an empty prefix, means every path.
    fn path(&mut self, path: Option<&PathMatch>) -> Result<PathTest, RuleFault> {
        let Some(PathMatch { type_, value }) = path else {
            return Ok(PathTest::Prefix(String::new()));
        };
        let absolute = || {
            if value.starts_with('/') {
                return Ok(value.as_str());
            }
            Err(RuleFault::RelativePath(value.clone()))
        };
        Ok(match type_ {
            PathMatchType::PathPrefix if value.is_empty() => PathTest::Prefix(String::new()),
            // Gateway API ignores a trailing slash; with KubeElasti `/abc/` did not match `/abc`.
            PathMatchType::PathPrefix => {
                let prefix = absolute()?;
                PathTest::Prefix(prefix.strip_suffix('/').unwrap_or(prefix).to_owned())
            }
            PathMatchType::Exact => PathTest::Exact(absolute()?.to_owned()),
            PathMatchType::RegularExpression => PathTest::Expression(self.expression(value)?),
        })
    }

    fn named(
        &mut self,
        name: &str,
        type_: ValueMatchType,
        value: &str,
    ) -> Result<(String, ValueTest), RuleFault> {
        if name.trim().is_empty() {
            return Err(RuleFault::NoName);
        }
        let test = match type_ {
            ValueMatchType::Exact => ValueTest::Exact(value.to_owned()),
            ValueMatchType::RegularExpression => ValueTest::Expression(self.expression(value)?),
        };
        Ok((name.to_owned(), test))
    }

    /// An expression matches if it is found anywhere, as with KubeElasti (Go's `MatchString`).
    /// Most Gateway API implementations match the whole value: a rule for them has the same effect here
    /// if it is written with `^` and `$`, which both understand.
    fn expression(&mut self, expression: &str) -> Result<Regex, RuleFault> {
        self.expressions += 1;
        if self.expressions > EXPRESSIONS {
            return Err(RuleFault::TooManyExpressions);
        }
        let compiled = compile(expression, false).or_else(|_| compile(expression, true));
        compiled.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => RuleFault::ExpressionTooLarge(expression.to_owned()),
            other => RuleFault::Expression {
                expression: expression.to_owned(),
                problem: last_line(&other.to_string()),
            },
        })
    }
}

/// Without Unicode `\w`, `\d` and `\s` mean ASCII, as in Go, and need a fiftieth of the memory;
/// an expression that spells Unicode classes out is read with it.
fn compile(expression: &str, unicode: bool) -> Result<Regex, regex::Error> {
    RegexBuilder::new(expression)
        .unicode(unicode)
        .size_limit(EXPRESSION_BYTES)
        .dfa_size_limit(EXPRESSION_BYTES)
        .build()
}

/// The parser draws the expression above its message.
fn last_line(message: &str) -> String {
    let line = message.lines().next_back().unwrap_or_default();
    line.trim().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
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

    fn header(
        rule: ProbeResponse,
        type_: ValueMatchType,
        name: &str,
        value: &str,
    ) -> ProbeResponse {
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
    fn a_rule_that_cannot_be_read_is_named_and_the_others_still_answer() {
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
                "probeResponse[0] matches nothing: its regular expression \"(\" cannot be read (unclosed group).",
                "probeResponse[1] matches nothing: its path \"health\" does not start with a slash.",
                "probeResponse[2] matches nothing: one of its matches has no name.",
                "probeResponse[3] matches nothing: its regular expression \"(\\\\pL{1000}){1000}\" needs too much memory.",
                "probeResponse[4] matches nothing: 99 is not a status that an answer can have.",
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
        let many = vec![regex("x"); EXPRESSIONS + 1];
        let (_, invalid) = ProbeRules::compile(&many);
        let one_too_many = InvalidRule {
            rule: EXPRESSIONS,
            fault: RuleFault::TooManyExpressions,
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
}
