//! A query cut into words, numbers, texts and signs, each with its place.

use super::Wrong;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Number,
    Duration,
    Text,
    Sign,
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: String,
    /// In characters, from 0.
    pub(super) at: usize,
}

impl Token {
    pub(super) fn end_of_nothing() -> Self {
        Self {
            kind: Kind::End,
            text: String::new(),
            at: 0,
        }
    }

    pub(super) fn is(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.text == sign
    }

    /// Keywords may be written in capitals.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// `NaN` and `Inf` are labels where a label is needed.
    pub(super) fn is_label(&self) -> bool {
        let starts_as_word = self.text.starts_with(|one: char| one.is_ascii_alphabetic());
        matches!(self.kind, Kind::Word | Kind::Text)
            || (self.kind == Kind::Number && starts_as_word)
    }

    pub(super) fn unexpected(&self, wanted: &str) -> Wrong {
        let what = match self.kind {
            Kind::End => format!("expected {wanted}, found the end of the query"),
            _ => format!("expected {wanted}, found {}", self.text),
        };
        Wrong::new(self.at, what)
    }
}

/// The longest first.
const SIGNS: [&str; 23] = [
    "==", "!=", "<=", ">=", "=~", "!~", "(", ")", "{", "}", "[", "]", ",", "+", "-", "*", "/", "%",
    "^", "<", ">", "=", "@",
];

/// All tokens, the last one `End`.
pub(super) fn split(text: &str) -> Result<Vec<Token>, Wrong> {
    let mut cutter = Cutter {
        letters: text.chars().collect(),
        at: 0,
        in_brackets: false,
    };
    let mut tokens = Vec::new();
    loop {
        let token = cutter.next()?;
        let ends = token.kind == Kind::End;
        tokens.push(token);
        if ends {
            return Ok(tokens);
        }
    }
}

struct Cutter {
    letters: Vec<char>,
    at: usize,
    /// There a colon is a sign; elsewhere it is part of a name.
    in_brackets: bool,
}

impl Cutter {
    fn letter(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.at + ahead).copied()
    }

    fn skip_space(&mut self) {
        while let Some(letter) = self.letter(0) {
            if letter == '#' {
                while self.letter(0).is_some_and(|letter| letter != '\n') {
                    self.at += 1;
                }
            } else if letter.is_whitespace() {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Token, Wrong> {
        self.skip_space();
        let at = self.at;
        let Some(letter) = self.letter(0) else {
            return Ok(Token {
                at,
                ..Token::end_of_nothing()
            });
        };
        let follows_digit = self.letter(1).is_some_and(|next| next.is_ascii_digit());
        if letter.is_ascii_digit() || (letter == '.' && follows_digit) {
            return self.number();
        }
        if matches!(letter, '"' | '\'' | '`') {
            return self.text(letter);
        }
        if starts_name(letter) && !(self.in_brackets && letter == ':') {
            return Ok(self.word());
        }
        self.sign(letter)
    }

    fn sign(&mut self, letter: char) -> Result<Token, Wrong> {
        let two: String = [Some(letter), self.letter(1)]
            .into_iter()
            .flatten()
            .collect();
        let found = match SIGNS.iter().find(|sign| two.starts_with(**sign)) {
            Some(sign) => (*sign).to_owned(),
            None if letter == ':' && self.in_brackets => ":".to_owned(),
            None => return Err(Wrong::new(self.at, format!("{letter} has no meaning here"))),
        };
        match found.as_str() {
            "[" => self.in_brackets = true,
            "]" => self.in_brackets = false,
            _ => {}
        }
        let at = self.at;
        self.at += found.chars().count();
        Ok(Token {
            kind: Kind::Sign,
            text: found,
            at,
        })
    }

    fn word(&mut self) -> Token {
        let at = self.at;
        let mut text = String::new();
        while let Some(letter) = self.letter(0) {
            let colon = letter == ':' && self.in_brackets;
            if colon || !(starts_name(letter) || letter.is_ascii_digit()) {
                break;
            }
            text.push(letter);
            self.at += 1;
        }
        let is_number = ["inf", "nan"]
            .iter()
            .any(|one| text.eq_ignore_ascii_case(one));
        let kind = if is_number { Kind::Number } else { Kind::Word };
        Token { kind, text, at }
    }

    fn number(&mut self) -> Result<Token, Wrong> {
        let at = self.at;
        let mut text = String::new();
        while let Some(letter) = self.letter(0) {
            let is_hex = text.starts_with("0x") || text.starts_with("0X");
            let signs_power = matches!(letter, '+' | '-')
                && text.ends_with(['e', 'E'])
                && !is_hex
                && self.letter(1).is_some_and(|next| next.is_ascii_digit());
            if !(letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_') || signs_power) {
                break;
            }
            text.push(letter);
            self.at += 1;
        }
        let kind = if is_number(&text) {
            Kind::Number
        } else if is_duration(&text) {
            Kind::Duration
        } else {
            let what = format!("{text} is neither a number nor a time such as 5m or 1h30m");
            return Err(Wrong::new(at, what));
        };
        Ok(Token { kind, text, at })
    }

    fn text(&mut self, quote: char) -> Result<Token, Wrong> {
        let at = self.at;
        self.at += 1;
        let mut text = String::from(quote);
        loop {
            let Some(letter) = self.letter(0) else {
                return Err(Wrong::new(at, format!("this {quote} is never closed")));
            };
            self.at += 1;
            text.push(letter);
            if letter == quote {
                return Ok(Token {
                    kind: Kind::Text,
                    text,
                    at,
                });
            }
            if letter == '\n' && quote != '`' {
                return Err(Wrong::new(
                    at,
                    format!("this {quote} is not closed on its line"),
                ));
            }
            if letter == '\\' && quote != '`' {
                self.escape(quote, &mut text)?;
            }
        }
    }

    fn escape(&mut self, quote: char, text: &mut String) -> Result<(), Wrong> {
        let Some(letter) = self.letter(0) else {
            return Ok(());
        };
        if !(r"abfnrtv\01234567xuU".contains(letter) || letter == quote) {
            let what = format!("\\{letter} is no escape; write \\\\{letter} for a backslash");
            return Err(Wrong::new(self.at - 1, what));
        }
        self.at += 1;
        text.push(letter);
        Ok(())
    }
}

fn starts_name(letter: char) -> bool {
    letter.is_ascii_alphabetic() || matches!(letter, '_' | ':')
}

fn is_number(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("0x") {
        Some(digits) => !digits.is_empty() && digits.chars().all(|one| one.is_ascii_hexdigit()),
        None => {
            let digits = lower
                .chars()
                .all(|one| one.is_ascii_digit() || "._e+-".contains(one));
            digits && lower.replace('_', "").parse::<f64>().is_ok()
        }
    }
}

/// Units from the largest to the smallest, each at most once.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 7] = ["y", "w", "d", "h", "m", "s", "ms"];
    let mut rest = text;
    let mut from = 0;
    while !rest.is_empty() {
        let digits = rest.chars().take_while(char::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.chars().take_while(char::is_ascii_alphabetic).count();
        let (unit, behind) = after.split_at(letters);
        let place = UNITS.iter().position(|one| *one == unit);
        match place {
            Some(place) if !number.is_empty() && place >= from => from = place + 1,
            _ => return false,
        }
        rest = behind;
    }
    !text.is_empty()
}
