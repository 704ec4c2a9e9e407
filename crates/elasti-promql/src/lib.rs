//! PromQL as far as its text can show it: is it well formed, can it give exactly one number, and which metrics does it name?

mod functions;
mod tokens;

use functions::{AGGREGATIONS, signature};
use tokens::{Kind, Token};

/// What is wrong, and where: `at` counts characters of the query from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The character.
    pub at: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Wrong {
    fn new(at: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { at, what }
    }
}

/// What a well-formed query gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// It has a value even where no series exists.
    pub always: bool,
    /// It never has more than one.
    pub single: bool,
    /// Functions that Prometheus does not have, and where.
    pub unknown: Vec<Wrong>,
    /// The metrics that it names, each once.
    pub metrics: Vec<String>,
}

/// The metrics without which the query has a value only by what it falls back on, such as `or vector(0)`. None if it has
/// no value without them, or is not well formed.
#[must_use]
pub fn metrics_behind_a_fallback(query: &str) -> Vec<String> {
    let read = parse(query).ok().filter(|query| query.always);
    read.map_or_else(Vec::new, |query| query.metrics)
}

/// The query for how many series a metric has now.
#[must_use]
pub fn count_of(metric: &str) -> String {
    format!("count({metric})")
}

/// Reads a query.
///
/// # Errors
/// If it is not well formed or gives no vector; the fault is the first one.
pub fn parse(text: &str) -> Result<Query, Wrong> {
    let mut parser = Parser {
        tokens: tokens::split(text)?,
        next: 0,
        depth: 0,
        unknown: Vec::new(),
        metrics: Vec::new(),
    };
    let shape = parser.expression(0)?;
    let rest = parser.peek();
    if rest.kind != Kind::End {
        return Err(rest.unexpected("an operator or the end of the query"));
    }
    match shape.kind {
        Type::Range => Err(Wrong::new(
            0,
            "the query returns a range of samples, not one number",
        )),
        Type::Text => Err(Wrong::new(0, "the query returns text, not a number")),
        Type::Scalar => Err(Wrong::new(
            0,
            "the query returns a scalar, and only vectors are supported; wrap it in vector(…)",
        )),
        Type::Vector | Type::Any => Ok(Query {
            always: shape.always,
            single: shape.single,
            unknown: parser.unknown,
            metrics: parser.metrics,
        }),
    }
}

/// Deeper than any query that a person writes, and far less than a stack holds.
const DEEPEST: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Scalar,
    Vector,
    Range,
    Text,
    /// Of a function that is not known.
    Any,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Self::Scalar => "a number",
            Self::Vector => "a vector",
            Self::Range => "a range, such as my_metric[5m]",
            Self::Text => "text in quotes",
            Self::Any => "anything",
        }
    }

    fn fits(self, wanted: Self) -> bool {
        self == wanted || self == Self::Any || wanted == Self::Any
    }
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: Type,
    always: bool,
    single: bool,
}

impl Shape {
    const NUMBER: Self = Self {
        kind: Type::Scalar,
        always: true,
        single: true,
    };
}

/// How tightly an operator binds; `^` is the tightest.
fn binding(operator: &str) -> Option<u8> {
    Some(match operator {
        "or" => 1,
        "and" | "unless" => 2,
        "==" | "!=" | "<=" | "<" | ">=" | ">" => 3,
        "+" | "-" => 4,
        "*" | "/" | "%" | "atan2" => 5,
        "^" => 6,
        _ => return None,
    })
}

const SETS: u8 = 2;
const COMPARISON: u8 = 3;
const SIGN: u8 = 5;
const POWER: u8 = 6;

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    unknown: Vec<Wrong>,
    metrics: Vec<String>,
}

impl Parser {
    /// The list ends in `End`, which is never taken.
    fn peek(&self) -> Token {
        let end = self.tokens.last();
        let token = self.tokens.get(self.next).or(end);
        token.cloned().unwrap_or_else(Token::end_of_nothing)
    }

    fn take(&mut self) -> Token {
        let token = self.peek();
        if token.kind != Kind::End {
            self.next += 1;
        }
        token
    }

    fn next_is(&self, text: &str) -> bool {
        self.peek().is(text)
    }

    fn word_is(&self, word: &str) -> bool {
        self.peek().is_word(word)
    }

    fn take_if(&mut self, text: &str) -> bool {
        let found = self.next_is(text) || self.word_is(text);
        if found {
            self.next += 1;
        }
        found
    }

    fn expect(&mut self, text: &str, why: &str) -> Result<Token, Wrong> {
        let token = self.take();
        match token.is(text) {
            true => Ok(token),
            false => Err(token.unexpected(why)),
        }
    }

    fn expression(&mut self, least: u8) -> Result<Shape, Wrong> {
        self.depth += 1;
        if self.depth > DEEPEST {
            let at = self.peek().at;
            return Err(Wrong::new(at, "the query is nested too deeply"));
        }
        let mut left = self.signed()?;
        loop {
            let operator = self.peek();
            let name = operator.text.to_ascii_lowercase();
            let Some(level) = binding(&name).filter(|level| *level >= least) else {
                break;
            };
            if operator.kind == Kind::Text {
                break;
            }
            self.next += 1;
            let matched = self.peek();
            let compares_as_bool = self.modifiers(level)?;
            let is_matched = matched.is_word("on") || matched.is_word("ignoring");
            let from = self.peek().at;
            // Only powers group from the right.
            let right = self.expression(if level == POWER { level } else { level + 1 })?;
            if is_matched && (left.kind == Type::Scalar || right.kind == Type::Scalar) {
                let what = "on and ignoring go only between two vectors";
                return Err(Wrong::new(matched.at, what));
            }
            left = Self::joined((&operator, level, compares_as_bool), left, right, from)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// `bool`, `on (…)`, `ignoring (…)`, `group_left (…)`; says whether it is `bool`.
    fn modifiers(&mut self, level: u8) -> Result<bool, Wrong> {
        let modifier = self.peek();
        let compares_as_bool = self.word_is("bool");
        if compares_as_bool {
            if level != COMPARISON {
                return Err(Wrong::new(
                    modifier.at,
                    "bool goes only with a comparison, such as > bool",
                ));
            }
            self.next += 1;
        }
        if self.word_is("on") || self.word_is("ignoring") {
            self.next += 1;
            self.labels()?;
            if self.word_is("group_left") || self.word_is("group_right") {
                if level <= SETS {
                    let what = "group_left and group_right do not go with and, or and unless";
                    return Err(Wrong::new(self.peek().at, what));
                }
                self.next += 1;
                if self.next_is("(") {
                    self.labels()?;
                }
            }
        } else if self.word_is("group_left") || self.word_is("group_right") {
            let wrong = "group_left and group_right go behind on (…) or ignoring (…)";
            return Err(Wrong::new(self.peek().at, wrong));
        }
        Ok(compares_as_bool)
    }

    fn joined(
        (operator, level, as_bool): (&Token, u8, bool),
        left: Shape,
        right: Shape,
        from: usize,
    ) -> Result<Shape, Wrong> {
        for (side, at) in [(left, operator.at), (right, from)] {
            if matches!(side.kind, Type::Range | Type::Text) {
                let what = format!("{} cannot be used with {}", side.kind.name(), operator.text);
                return Err(Wrong::new(at, what));
            }
        }
        let scalars = left.kind == Type::Scalar && right.kind == Type::Scalar;
        let any_scalar = left.kind == Type::Scalar || right.kind == Type::Scalar;
        if level <= SETS && any_scalar {
            let what = format!(
                "{} joins vectors only; write vector(0) for 0",
                operator.text
            );
            return Err(Wrong::new(operator.at, what));
        }
        if level == COMPARISON && scalars && !as_bool {
            let what = "two numbers are compared with bool, such as 1 > bool 0";
            return Err(Wrong::new(operator.at, what));
        }
        let kind = match (scalars, left.kind == Type::Any && right.kind == Type::Any) {
            (true, _) => Type::Scalar,
            (_, true) => Type::Any,
            _ => Type::Vector,
        };
        // A comparison without bool drops what does not hold.
        let keeps = level != COMPARISON || as_bool;
        let always = match operator.text.to_ascii_lowercase().as_str() {
            "or" => left.always || right.always,
            "unless" => false,
            _ => left.always && right.always && keeps,
        };
        let single = match operator.text.to_ascii_lowercase().as_str() {
            "and" | "unless" => left.single,
            _ => left.single && right.single,
        };
        Ok(Shape {
            kind,
            always,
            single,
        })
    }

    fn signed(&mut self) -> Result<Shape, Wrong> {
        let sign = self.peek();
        if !(sign.is("+") || sign.is("-")) {
            return self.primary();
        }
        self.next += 1;
        let shape = self.expression(SIGN + 1)?;
        match shape.kind {
            Type::Range | Type::Text => Err(Wrong::new(
                sign.at,
                format!("{} has no sign", shape.kind.name()),
            )),
            Type::Scalar | Type::Vector | Type::Any => Ok(shape),
        }
    }

    /// A value with what may stand behind it: ranges, `offset`, `@`.
    fn primary(&mut self) -> Result<Shape, Wrong> {
        let start = self.peek().at;
        let (mut shape, mut is_selector) = self.value()?;
        loop {
            if self.next_is("[") {
                shape = self.range(shape, is_selector)?;
                is_selector = false;
            } else if self.word_is("offset") {
                self.next += 1;
                self.time_of(shape, start)?;
                let _ = self.take_if("-") || self.take_if("+");
                self.duration("a time such as 5m behind offset")?;
            } else if self.next_is("@") {
                self.next += 1;
                self.time_of(shape, start)?;
                self.moment()?;
            } else {
                return Ok(shape);
            }
        }
    }

    fn time_of(&self, shape: Shape, start: usize) -> Result<(), Wrong> {
        match shape.kind {
            Type::Vector | Type::Range | Type::Any => Ok(()),
            Type::Scalar | Type::Text => Err(Wrong::new(
                start,
                "offset and @ go only behind a selector or a subquery",
            )),
        }
    }

    fn moment(&mut self) -> Result<(), Wrong> {
        let _ = self.take_if("-") || self.take_if("+");
        let moment = self.take();
        if moment.is_word("start") || moment.is_word("end") {
            self.expect("(", "( behind start or end")?;
            self.expect(")", ") behind start( or end(")?;
            return Ok(());
        }
        match moment.kind {
            Kind::Number => Ok(()),
            _ => Err(moment.unexpected("a time stamp, start() or end() behind @")),
        }
    }

    fn range(&mut self, shape: Shape, is_selector: bool) -> Result<Shape, Wrong> {
        let open = self.take();
        self.duration("a time such as 5m in the brackets")?;
        if self.take_if(":") {
            if !self.next_is("]") {
                self.duration("a time such as 1m, or ], behind the colon")?;
            }
            if !matches!(shape.kind, Type::Vector | Type::Any) {
                let what = format!("a subquery is of a vector, not of {}", shape.kind.name());
                return Err(Wrong::new(open.at, what));
            }
        } else if !is_selector {
            let what = "a range goes only behind a selector; for an expression write a subquery, such as [5m:]";
            return Err(Wrong::new(open.at, what));
        }
        self.expect("]", "] to end the range")?;
        Ok(Shape {
            kind: Type::Range,
            ..shape
        })
    }

    fn duration(&mut self, wanted: &str) -> Result<(), Wrong> {
        let token = self.take();
        match token.kind {
            Kind::Duration | Kind::Number => Ok(()),
            _ => Err(token.unexpected(wanted)),
        }
    }

    /// Says also whether it is a bare selector.
    fn value(&mut self) -> Result<(Shape, bool), Wrong> {
        let token = self.take();
        match token.kind {
            Kind::Number | Kind::Duration => Ok((Shape::NUMBER, false)),
            Kind::Text => {
                let kind = Type::Text;
                Ok((
                    Shape {
                        kind,
                        ..Shape::NUMBER
                    },
                    false,
                ))
            }
            Kind::Word => self.word(&token),
            Kind::Sign if token.is("(") => {
                let inner = self.expression(0)?;
                self.close(&token)?;
                Ok((inner, false))
            }
            Kind::Sign if token.is("{") => match self.matchers(&token)? {
                true => Ok((Self::selected(), true)),
                false => Err(Wrong::new(
                    token.at,
                    "this selects every series; name a metric or a label with a value",
                )),
            },
            Kind::Sign | Kind::End => Err(token.unexpected("a metric, a number or a function")),
        }
    }

    fn selected() -> Shape {
        Shape {
            kind: Type::Vector,
            always: false,
            single: false,
        }
    }

    fn word(&mut self, word: &Token) -> Result<(Shape, bool), Wrong> {
        let name = word.text.to_ascii_lowercase();
        if AGGREGATIONS.contains(&name.as_str())
            && (self.next_is("(") || self.word_is("by") || self.word_is("without"))
        {
            return Ok((self.aggregation(&name)?, false));
        }
        if self.next_is("(") {
            return Ok((self.call(word)?, false));
        }
        if !self.metrics.contains(&word.text) {
            self.metrics.push(word.text.clone());
        }
        if self.next_is("{") {
            let open = self.take();
            self.matchers(&open)?;
        }
        Ok((Self::selected(), true))
    }

    fn aggregation(&mut self, name: &str) -> Result<Shape, Wrong> {
        let mut grouped = self.grouping()?;
        let open = self.expect("(", "( behind the aggregation")?;
        let arguments = self.arguments(&open)?;
        if !grouped {
            grouped = self.grouping()?;
        }
        let takes_two = matches!(
            name,
            "topk" | "bottomk" | "quantile" | "count_values" | "limitk" | "limit_ratio"
        );
        let wanted = if takes_two { 2 } else { 1 };
        if arguments.len() != wanted {
            let what = format!(
                "{name} takes {wanted} argument{}, not {}",
                if takes_two { "s" } else { "" },
                arguments.len()
            );
            return Err(Wrong::new(open.at, what));
        }
        let mut inner = Self::selected();
        for (index, (argument, at)) in arguments.into_iter().enumerate() {
            let is_last = index + 1 == wanted;
            let kind = match (is_last, name) {
                (true, _) => Type::Vector,
                (false, "count_values") => Type::Text,
                (false, _) => Type::Scalar,
            };
            if !argument.kind.fits(kind) {
                return Err(Self::misfit(name, at, kind, argument.kind));
            }
            inner = argument;
        }
        let keeps_series = matches!(
            name,
            "topk" | "bottomk" | "count_values" | "limitk" | "limit_ratio"
        );
        Ok(Shape {
            kind: Type::Vector,
            always: inner.always,
            single: inner.single || (!grouped && !keeps_series),
        })
    }

    fn misfit(name: &str, at: usize, wanted: Type, found: Type) -> Wrong {
        let what = format!(
            "{name} takes {}, not {}",
            wanted.name(),
            match found {
                Type::Range => "a range",
                other => other.name(),
            }
        );
        Wrong::new(at, what)
    }

    fn grouping(&mut self) -> Result<bool, Wrong> {
        if !(self.word_is("by") || self.word_is("without")) {
            return Ok(false);
        }
        let by = self.take();
        let any = self.labels()?;
        // `by ()` is the same as no grouping.
        Ok(any || by.is_word("without"))
    }

    /// `(a, b)`; says whether there is any.
    fn labels(&mut self) -> Result<bool, Wrong> {
        let open = self.expect("(", "( and a list of labels")?;
        let mut any = false;
        while !self.next_is(")") {
            let label = self.take();
            if !label.is_label() {
                return Err(label.unexpected("a label"));
            }
            any = true;
            if !self.take_if(",") {
                break;
            }
        }
        self.close(&open)?;
        Ok(any)
    }

    fn close(&mut self, open: &Token) -> Result<(), Wrong> {
        if self.take_if(")") {
            return Ok(());
        }
        let found = self.peek();
        match found.kind {
            Kind::End => Err(Wrong::new(open.at, "this ( is never closed")),
            _ => Err(found.unexpected("an operator, a comma or )")),
        }
    }

    fn arguments(&mut self, open: &Token) -> Result<Vec<(Shape, usize)>, Wrong> {
        let mut found = Vec::new();
        while !self.next_is(")") {
            let at = self.peek().at;
            if !found.is_empty() && self.peek().kind == Kind::End {
                return Err(Wrong::new(open.at, "this ( is never closed"));
            }
            found.push((self.expression(0)?, at));
            if !self.take_if(",") {
                break;
            }
            if self.next_is(")") {
                return Err(self.peek().unexpected("an argument behind the comma"));
            }
        }
        self.close(open)?;
        Ok(found)
    }

    fn call(&mut self, word: &Token) -> Result<Shape, Wrong> {
        let open = self.take();
        let arguments = self.arguments(&open)?;
        let name = word.text.as_str();
        let Some(signature) = signature(name) else {
            let what = format!("Prometheus has no function {name}");
            self.unknown.push(Wrong::new(word.at, what));
            return Ok(Shape {
                kind: Type::Any,
                always: true,
                single: true,
            });
        };
        let (least, most) = signature.count();
        if arguments.len() < least || arguments.len() > most {
            let wanted = match (least, most) {
                (least, usize::MAX) => format!("at least {least}"),
                (least, most) if least == most => least.to_string(),
                (least, most) => format!("{least} to {most}"),
            };
            let what = format!("{name} takes {wanted} arguments, not {}", arguments.len());
            return Err(Wrong::new(word.at, what));
        }
        let mut shape = Shape::NUMBER;
        for (index, (argument, at)) in arguments.iter().enumerate() {
            let wanted = signature.argument(index);
            if !argument.kind.fits(wanted) {
                return Err(Self::misfit(name, *at, wanted, argument.kind));
            }
            shape.always &= argument.always;
            shape.single &= argument.single;
        }
        if matches!(name, "vector" | "scalar" | "time" | "pi") || arguments.is_empty() {
            shape = Shape::NUMBER;
        }
        if name == "absent" || name == "absent_over_time" {
            (shape.always, shape.single) = (false, true);
        }
        Ok(Shape {
            kind: signature.gives,
            ..shape
        })
    }

    /// Says whether one of them rules out an empty label: without a name there must be such a one.
    fn matchers(&mut self, open: &Token) -> Result<bool, Wrong> {
        let mut narrows = false;
        loop {
            let token = self.take();
            match token.kind {
                Kind::Sign if token.is("}") => return Ok(narrows),
                Kind::End => return Err(Wrong::new(open.at, "this { is never closed")),
                _ if token.is_label() => {}
                _ => return Err(token.unexpected("a label or }")),
            }
            let bare = token.kind == Kind::Text && (self.next_is(",") || self.next_is("}"));
            if !bare {
                let operator = self.take();
                if !["=", "!=", "=~", "!~"].iter().any(|one| operator.is(one)) {
                    return Err(operator.unexpected("=, !=, =~ or !~ behind the label"));
                }
                let value = self.take();
                if value.kind != Kind::Text {
                    return Err(value.unexpected("a value in quotes"));
                }
                let inner = value.text.trim_matches(['"', '\'', '`']);
                narrows |= match operator.text.as_str() {
                    "=" => !inner.is_empty(),
                    "!=" => inner.is_empty(),
                    "=~" => !matches!(inner, "" | ".*"),
                    _ => matches!(inner, "" | ".*"),
                };
            }
            narrows |= bare;
            if !self.take_if(",") && !self.next_is("}") {
                let found = self.peek();
                return Err(match found.kind {
                    Kind::End => Wrong::new(open.at, "this { is never closed"),
                    _ => found.unexpected("a comma or }"),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
