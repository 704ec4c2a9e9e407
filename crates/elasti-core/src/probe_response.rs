//! Requests that are answered while a service is asleep, without waking it: health checks and bots.
//! An invalid rule matches nothing and is reported, so that it can never answer requests that should wake.

use std::borrow::Cow;

use elasti_api::{
    HeaderMatch, Method, PathMatch, PathMatchType, ProbeAnswer, ProbeResponse, QueryParamMatch,
    ValueMatchType,
};
use regex::bytes::{Regex, RegexBuilder};

/// Most bytes of one compiled regular expression, and again of its cache.
///
/// A usual expression, such as `^/api/v\d+/[^/]+/status$`, needs less than 3 KiB; one with a Unicode class about 50 KiB.
const MAX_EXPRESSION_BYTES: usize = 128 * 1024;

/// Most regular expressions of one service: 64 x 2 x 128 KiB = 16 MiB at the very worst.
/// The 32 rules that the CRD allows may have two each; its limits alone (32 x 33 matches) would allow 264 MiB.
const MAX_EXPRESSIONS: usize = 64;

/// The parts of a request that rules match.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest<'a> {
    /// As in the request.
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
#[error("probeResponse[{rule}] matches nothing: {error}.")]
pub struct InvalidRule {
    /// Its index in the spec, from 0.
    pub rule: usize,
    /// What is wrong with it.
    pub error: RuleError,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// No request has such a path.
    #[error("its path {0:?} does not start with a slash")]
    RelativePath(String),
    /// A header or query parameter has no name.
    #[error("one of its matches has no name")]
    NoName,
    /// A regular expression is invalid.
    #[error("its regular expression {expression:?} is invalid ({problem})")]
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
    #[error("the service has more than {MAX_EXPRESSIONS} regular expressions")]
    TooManyExpressions,
    /// Not a status that a response can have.
    #[error("{0} is not a valid response status")]
    Status(u16),
}

impl ProbeRules {
    /// Compiles the rules, and reports the invalid ones.
    #[must_use]
    pub fn compile(rules: &[ProbeResponse]) -> (Self, Vec<InvalidRule>) {
        let mut compiler = Compiler { expressions: 0 };
        let mut compiled = Self::default();
        let mut invalid = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            match compiler.rule(rule) {
                Ok(rule) => compiled.rules.push(rule),
                Err(error) => invalid.push(InvalidRule { rule: index, error }),
            }
        }
        (compiled, invalid)
    }

    /// The response of the first rule that matches; `None` means that the request wakes the service.
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

    /// There is nothing to match, so no request needs to be parsed before it waits.
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
    fn rule(&mut self, rule: &ProbeResponse) -> Result<Rule, RuleError> {
        let ProbeResponse {
            path,
            headers,
            query_params,
            method,
            response,
        } = rule;
        if !(200..=599).contains(&response.status) {
            return Err(RuleError::Status(response.status));
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
    fn path(&mut self, path: Option<&PathMatch>) -> Result<PathTest, RuleError> {
        let Some(PathMatch { type_, value }) = path else {
            return Ok(PathTest::Prefix(String::new()));
        };
        let absolute = || {
            if value.starts_with('/') {
                return Ok(value.as_str());
            }
            Err(RuleError::RelativePath(value.clone()))
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
    ) -> Result<(String, ValueTest), RuleError> {
        if name.trim().is_empty() {
            return Err(RuleError::NoName);
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
    fn expression(&mut self, expression: &str) -> Result<Regex, RuleError> {
        self.expressions += 1;
        if self.expressions > MAX_EXPRESSIONS {
            return Err(RuleError::TooManyExpressions);
        }
        let most = MAX_EXPRESSION_BYTES;
        let ascii = compile(expression, false, most);
        let compiled = ascii.or_else(|_| compile(expression, true, most));
        compiled.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => RuleError::ExpressionTooLarge(expression.to_owned()),
            other => RuleError::Expression {
                expression: expression.to_owned(),
                problem: last_line(&other.to_string()),
            },
        })
    }
}

/// Without Unicode `\w`, `\d` and `\s` mean ASCII, as in Go, and need a fiftieth of the memory;
/// an expression with explicit Unicode classes is compiled with it.
fn compile(expression: &str, unicode: bool, most_bytes: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(expression)
        .unicode(unicode)
        .size_limit(most_bytes)
        .dfa_size_limit(most_bytes)
        .build()
}

/// The parser draws the expression above its message.
fn last_line(message: &str) -> String {
    let line = message.lines().next_back().unwrap_or_default();
    line.trim().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
