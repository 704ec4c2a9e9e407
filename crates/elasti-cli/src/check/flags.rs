//! Which arguments of a KubeElasti operator Elasti's operator refuses, as its own parser decides.

use clap::Args as _;
use elasti_operator::environment::Flags;

use super::line::Line;

const CHECK: &str = "flags";
const VALUE: &str = "elastiController.manager.args";

/// An argument that is refused, with its value, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    given: String,
    instead: Option<String>,
}

/// The operator does not start with an argument that its parser refuses.
pub(super) fn check(arguments: &[String]) -> Line {
    let refused = refused(arguments);
    if refused.is_empty() {
        return match parse(arguments) {
            Ok(()) => Line::ok(CHECK, "Elasti's operator takes every argument"),
            Err(why) => Line::fail(
                CHECK,
                format!("Elasti's operator does not start: {why}"),
                format!("correct {VALUE}"),
            ),
        };
    }
    let given: Vec<&str> = refused.iter().map(|one| one.given.as_str()).collect();
    let message = format!("Elasti's operator does not start with {}", given.join(" "));
    Line::fail(CHECK, message, fix(&refused))
}

fn fix(refused: &[Refused]) -> String {
    let instead: Vec<&str> = refused
        .iter()
        .filter_map(|one| one.instead.as_deref())
        .collect();
    let gone = refused.iter().filter(|one| one.instead.is_none());
    let gone: Vec<&str> = gone.map(|one| one.given.as_str()).collect();
    match (instead.is_empty(), gone.is_empty()) {
        (true, _) => format!("remove it from {VALUE}"),
        (false, true) => format!("write {} in {VALUE}", instead.join(" ")),
        (false, false) => format!(
            "write {} in {VALUE}, and remove {}",
            instead.join(" "),
            gone.join(" ")
        ),
    }
}

/// Each alone: the parser itself stops at the first.
fn refused(arguments: &[String]) -> Vec<Refused> {
    let mut refused = Vec::new();
    let mut rest = arguments;
    while let [first, others @ ..] = rest {
        if let Some(length) = taken(first, others) {
            rest = rest.get(length..).unwrap_or_default();
            continue;
        }
        // Go also reads a flag with one dash.
        let doubled = format!("-{first}");
        let is_single = first.starts_with('-') && !first.starts_with("--");
        let length = is_single.then(|| taken(&doubled, others)).flatten();
        let value = others.first().filter(|_| length == Some(2));
        let with_value = |flag: &str| match value {
            Some(value) => format!("{flag} {value}"),
            None => flag.to_owned(),
        };
        refused.push(Refused {
            given: with_value(first),
            instead: length.map(|_| with_value(&doubled)),
        });
        rest = rest.get(length.unwrap_or(1)..).unwrap_or_default();
    }
    refused
}

/// How many arguments the first is with its value, which may be the next; `None` if it is refused.
fn taken(first: &String, others: &[String]) -> Option<usize> {
    if parse(std::slice::from_ref(first)).is_ok() {
        return Some(1);
    }
    let value = others.first()?;
    parse(&[first.clone(), value.clone()]).ok().map(|()| 2)
}

fn parse(arguments: &[String]) -> Result<(), String> {
    let command = Flags::augment_args(clap::Command::new("operator").no_binary_name(true));
    match command.try_get_matches_from(arguments) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Err(line.trim_start_matches("error: ").to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::check::line::{Line, Verdict};

    fn line(given: &[&str]) -> Line {
        let given: Vec<String> = given.iter().map(|one| (*one).to_owned()).collect();
        check(&given)
    }

    fn failed(given: &[&str]) -> (String, String) {
        let line = line(given);
        assert_eq!(line.verdict, Verdict::Fail, "{given:?}");
        (line.message, line.fix.unwrap_or_default())
    }

    #[test]
    fn a_value_may_be_an_argument_of_its_own() {
        for given in [
            &[][..],
            &["--leader-elect", "--zap-log-level=debug"],
            &["--zap-log-level", "debug", "--leader-elect"],
            &["--metrics-bind-address", ":8080", "--enable-http2=false"],
        ] {
            assert_eq!(line(given).verdict, Verdict::Ok, "{given:?}");
        }
    }

    #[test]
    fn a_flag_with_one_dash_is_refused_as_the_operator_refuses_it() {
        let (message, fix) = failed(&["-leader-elect", "-zap-log-level", "debug"]);
        assert_eq!(
            message,
            "Elasti's operator does not start with -leader-elect -zap-log-level debug"
        );
        assert_eq!(
            fix,
            "write --leader-elect --zap-log-level debug in elastiController.manager.args"
        );
        let (_, fix) = failed(&["-leader-elect=true", "--kubeconfig=/etc/kubeconfig"]);
        assert_eq!(
            fix,
            "write --leader-elect=true in elastiController.manager.args, and remove --kubeconfig=/etc/kubeconfig"
        );
    }

    #[test]
    fn what_the_parser_refuses_for_another_reason_is_reported_too() {
        let (message, _) = failed(&["--leader-elect", "true"]);
        assert_eq!(message, "Elasti's operator does not start with true");
        let (message, _) = failed(&["--leader-elect=yes"]);
        assert!(message.ends_with("with --leader-elect=yes"), "{message}");
        let (message, _) = failed(&["--zap-log-level", "--leader-elect"]);
        assert!(message.ends_with("with --zap-log-level"), "{message}");
        let (message, fix) = failed(&["--leader-elect", "--leader-elect"]);
        assert!(
            message.contains("cannot be used multiple times"),
            "{message}"
        );
        assert_eq!(fix, "correct elastiController.manager.args");
    }
}
