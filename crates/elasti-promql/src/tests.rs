//! Queries that are well formed and queries that are not, with the place of the fault.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::{Query, metrics_behind_a_fallback, parse};

/// The query with `»` before the character of the error, and its message.
fn error_of(query: &str) -> String {
    match parse(query) {
        Ok(found) => panic!("{query} is read as {found:?}"),
        Err(wrong) => {
            let mut letters: Vec<char> = query.chars().collect();
            letters.insert(wrong.at.min(letters.len()), '»');
            format!("{}: {}", letters.iter().collect::<String>(), wrong.what)
        }
    }
}

fn shape(query: &str) -> (bool, bool) {
    let Query { always, single, .. } =
        parse(query).unwrap_or_else(|wrong| panic!("{query}: {wrong:?}"));
    (always, single)
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn every_fault_is_named_with_its_place() {
    for (query, message) in [
        (
            "sum(rate(a[5m])",
            "sum»(rate(a[5m]): this ( is never closed",
        ),
        (
            "sum(rate(a[5m])))",
            "sum(rate(a[5m]))»): expected an operator or the end of the query, found )",
        ),
        (
            "rate(a)",
            "rate(»a): rate takes a range, such as my_metric[5m], not a vector",
        ),
        (
            "rate(a[5x])",
            "rate(a[»5x]): 5x is neither a number nor a time such as 5m or 1h30m",
        ),
        ("a{b=c}", "a{b=»c}: expected a value in quotes, found c"),
        ("a{b=\"c\"", "a»{b=\"c\": this { is never closed"),
        (
            "a{b==\"c\"}",
            "a{b»==\"c\"}: expected =, !=, =~ or !~ behind the label, found ==",
        ),
        ("a{b=\"c}", "a{b=»\"c}: this \" is never closed"),
        (
            "sum(a) or 0",
            "sum(a) »or 0: or joins vectors only; write vector(0) for 0",
        ),
        (
            "sum(a) or",
            "sum(a) or»: expected a metric, a number or a function, found the end of the query",
        ),
        (
            "a[5m]",
            "»a[5m]: the query returns a range of samples, not one number",
        ),
        ("\"a\"", "»\"a\": the query returns text, not a number"),
        (
            "1 + 1",
            "»1 + 1: the query returns a scalar, and only vectors are supported; wrap it in vector(…)",
        ),
        (
            "{b=~\".*\"}",
            "»{b=~\".*\"}: this selects every series; name a metric or a label with a value",
        ),
        (
            "a == on (b) 1",
            "a == »on (b) 1: on and ignoring go only between two vectors",
        ),
        (
            "a or on (b) group_left c",
            "a or on (b) »group_left c: group_left and group_right do not go with and, or and unless",
        ),
        ("a && b", "a »&& b: & has no meaning here"),
        (
            "sum a",
            "sum »a: expected an operator or the end of the query, found a",
        ),
        (
            "",
            "»: expected a metric, a number or a function, found the end of the query",
        ),
        ("vector()", "»vector(): vector takes 1 arguments, not 0"),
        ("sum(a, b)", "sum»(a, b): sum takes 1 argument, not 2"),
        (
            "1 > 0",
            "1 »> 0: two numbers are compared with bool, such as 1 > bool 0",
        ),
        (
            "sum by service (a)",
            "sum by »service (a): expected ( and a list of labels, found service",
        ),
        (
            "a offset b",
            "a offset »b: expected a time such as 5m behind offset, found b",
        ),
        (
            "sum(a)[5m]",
            "sum(a)»[5m]: a range goes only behind a selector; for an expression write a subquery, such as [5m:]",
        ),
    ] {
        assert_eq!(error_of(query), message);
    }
}

#[test]
fn what_people_write_is_read() {
    for query in [
        "sum(rate(http_requests_total{service=\"web\"}[5m])) or vector(0)",
        "sum by (a) (rate(b[1m])) / on (a) group_left (c) sum by (a) (d)",
        "SUM(rate(a[5m])) BY (b) > bool 3",
        "max_over_time(sum(rate(a[1m]))[5m:30s])",
        "-2 ^ 2 + -sum(a)",
        "a offset -5m @ 1609746000",
        "a @ start() offset 1h30m",
        "{__name__=~\"a.*\", b!~'c',}",
        "{\"utf8.metric\", \"la.bel\"=\"x\"}",
        "histogram_quantile(0.99, sum by (le) (rate(a_bucket[5m])))",
        "count_values(\"version\", build)",
        "label_join(a, \"b\", \",\", \"c\", \"d\")",
        "sum(a) # how much\n  or vector(0)",
        "job:requests:rate5m{a=\"b\"}",
        "vector(0x1F + 1e-3 + .5 + Inf)",
        "a == bool 1 and on () b unless ignoring (x) c",
        "hour() >= 8",
        "topk(1, a)",
    ] {
        parse(query).unwrap_or_else(|wrong| panic!("{query}: {wrong:?}"));
    }
}

#[test]
fn a_function_that_is_not_known_is_named_and_not_refused() {
    let found = parse("range_median(a[5m])").unwrap();
    assert_eq!(found.unknown.len(), 1);
    assert_eq!(found.unknown.first().unwrap().at, 0);
}

#[test]
fn whether_a_query_always_gives_exactly_one_number_is_known() {
    assert_eq!(shape("sum(rate(a[1m])) or vector(0)"), (true, true));
    assert_eq!(shape("sum(rate(a[1m]))"), (false, true));
    assert_eq!(shape("rate(a[1m])"), (false, false));
    assert_eq!(shape("sum by (b) (a)"), (false, false));
    assert_eq!(shape("sum by () (a)"), (false, true));
    assert_eq!(shape("vector(1)"), (true, true));
    assert_eq!(shape("vector(1 + scalar(a))"), (true, true));
    assert_eq!(shape("(sum(a) or vector(0)) > 3"), (false, true));
    assert_eq!(shape("absent(a)"), (false, true));
}

#[test]
fn deep_nesting_is_refused_and_does_not_overflow() {
    let deep = format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000));
    assert_eq!(
        parse(&deep).unwrap_err().what,
        "the query is nested too deeply"
    );
}

#[test]
fn the_metrics_of_a_query_are_named_once_and_functions_and_labels_are_none() {
    let metrics = |query: &str| parse(query).map(|query| query.metrics).unwrap_or_default();
    let one = "sum by (le) (rate(a_total{job=\"x\"}[5m])) / sum(a_total offset 1m) or vector(0)";
    assert_eq!(metrics(one), ["a_total"]);
    assert_eq!(metrics("sum(a:b + c) or vector(0)"), ["a:b", "c"]);
    assert!(metrics("vector(0)").is_empty());
}

#[test]
fn only_a_query_with_a_fallback_hides_that_its_metric_has_no_series() {
    let hidden = metrics_behind_a_fallback;
    assert_eq!(hidden("sum(rate(a[5m])) or vector(0)"), ["a"]);
    assert_eq!(hidden("sum(a) + sum(b) or vector(0)"), ["a", "b"]);
    assert!(hidden("sum(rate(a[5m]))").is_empty(), "it has no value");
    assert!(hidden("vector(1)").is_empty(), "it names no metric");
    assert!(hidden("sum(").is_empty());
}
