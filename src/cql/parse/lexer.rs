//! Tokens of CQL. Each is the longest that fits, as in Cassandra's grammar.

use super::super::ast::ConstantKind;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Keywords that are names only in quotes.
static RESERVED: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "add allow alter and apply asc authorize batch begin by columnfamily create default delete \
     desc describe drop entries execute from full grant if in index insert into is keyspace limit \
     materialized mbean mbeans modify norecursive not null of on or order primary rename replace \
     revoke schema select set table to token truncate unlogged unset update use using view where \
     with"
        .split(' ')
        .collect()
});

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name without quotes. Most keywords are names too.
    Word,
    /// A keyword that is a name only in quotes.
    Reserved,
    /// A name in double quotes.
    QuotedName,
    /// A constant.
    Constant(ConstantKind),
    /// An operator or other punctuation.
    Symbol,
    /// A character that begins no token.
    Stray,
    /// A string, name or comment without its end.
    Open,
    /// The end of the text.
    End,
}

/// A token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    /// Its kind.
    pub(super) kind: Kind,
    /// The offset of its first byte.
    pub(super) start: usize,
    /// Its text, with the quotes.
    pub(super) text: &'a str,
}

impl Token<'_> {
    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Reserved) && self.text.eq_ignore_ascii_case(word)
    }

    /// The text, without quotes and with doubled quotes halved.
    pub(super) fn value(&self) -> String {
        let inner = |quote: &str| {
            self.text.strip_prefix(quote).and_then(|it| it.strip_suffix(quote)).unwrap_or_default()
        };
        match self.text.as_bytes().first() {
            Some(b'\'') => inner("'").replace("''", "'"),
            Some(b'"') => inner("\"").replace("\"\"", "\""),
            Some(b'$') => inner("$$").to_owned(),
            _ => self.text.to_owned(),
        }
    }
}

/// The rest of a text.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    rest: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, at: 0 }
    }

    /// Takes the next token. After the last there are only [`Kind::End`]s.
    pub(super) fn next_token(&mut self) -> Token<'a> {
        while let Some(length) = blank(self.rest) {
            self.take(length);
        }
        let (kind, length) = measure(self.rest);
        let start = self.at;
        Token { kind, start, text: self.take(length) }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.at += taken.len();
        taken
    }
}

/// Length of the white space or the comment at the start of a text. A comment without its end is
/// not one.
fn blank(text: &str) -> Option<usize> {
    let space = text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len();
    if space > 0 {
        Some(space)
    } else if text.starts_with("--") || text.starts_with("//") {
        Some(text.find(['\n', '\r']).unwrap_or(text.len()))
    } else if text.starts_with("/*") {
        text.get(2..)?.find("*/").map(|end| end + 4)
    } else {
        None
    }
}

/// Kind and length of the token at the start of a text.
fn measure(text: &str) -> (Kind, usize) {
    let Some(first) = text.chars().next() else { return (Kind::End, 0) };
    match first {
        '\'' => quoted(text, Kind::Constant(ConstantKind::String)),
        '"' => quoted(text, Kind::QuotedName),
        '$' if text.starts_with("$$") => match text.get(2..).and_then(|it| it.find("$$")) {
            Some(end) => (Kind::Constant(ConstantKind::String), end + 4),
            None => (Kind::Open, text.len()),
        },
        '/' if text.starts_with("/*") => (Kind::Open, text.len()),
        _ => match word_or_number(text) {
            (_, 0) => symbol(text, first.len_utf8()),
            found => found,
        },
    }
}

/// A string or a name that ends with the quote it begins with; two of them are one inside.
fn quoted(text: &str, kind: Kind) -> (Kind, usize) {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(more) = bytes.get(at..).and_then(|it| it.iter().position(|it| *it == bytes[0])) {
        at += more + 1;
        if bytes.get(at) != bytes.first() {
            return (kind, at);
        }
        at += 1;
    }
    (Kind::Open, text.len())
}

fn symbol(text: &str, length_of_first: usize) -> (Kind, usize) {
    if ["<=", ">=", "!=", "+=", "-="].iter().any(|it| text.starts_with(it)) {
        (Kind::Symbol, 2)
    } else if text.starts_with(|it| "(),;.:?[]{}<>=+-*/%".contains(it)) {
        (Kind::Symbol, 1)
    } else {
        (Kind::Stray, length_of_first)
    }
}

/// The longest of all words and constants without quotes. Of two of the same length a constant
/// goes before a word.
fn word_or_number(text: &str) -> (Kind, usize) {
    let word = text.get(..word(text.as_bytes())).unwrap_or_default();
    let first = (word_kind(word), word.len());
    let text = text.as_bytes();
    let constants = [
        (ConstantKind::Integer, integer(text)),
        (ConstantKind::Float, float(text)),
        (ConstantKind::Duration, duration(text)),
        (ConstantKind::Uuid, shape(text, 0, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh")),
        (ConstantKind::Hex, hex(text)),
    ];
    constants.into_iter().fold(first, |best, (kind, length)| {
        if length > 0 && length >= best.1 { (Kind::Constant(kind), length) } else { best }
    })
}

/// Kind of a token that has the form of a word.
fn word_kind(word: &str) -> Kind {
    match word.to_ascii_lowercase().as_str() {
        "true" | "false" => Kind::Constant(ConstantKind::Boolean),
        "nan" | "infinity" => Kind::Constant(ConstantKind::Float),
        word if RESERVED.contains(word) => Kind::Reserved,
        _ => Kind::Word,
    }
}

fn count(text: &[u8], from: usize, is_in: impl Fn(&u8) -> bool) -> usize {
    text.iter().skip(from).take_while(|it| is_in(it)).count()
}

fn digits(text: &[u8], from: usize) -> usize {
    count(text, from, u8::is_ascii_digit)
}

fn sign(text: &[u8]) -> usize {
    usize::from(text.starts_with(b"-"))
}

fn word(text: &[u8]) -> usize {
    match text.first() {
        Some(first) if first.is_ascii_alphabetic() => {
            count(text, 0, |it| it.is_ascii_alphanumeric() || *it == b'_')
        }
        _ => 0,
    }
}

fn integer(text: &[u8]) -> usize {
    match digits(text, sign(text)) {
        0 => 0,
        found => sign(text) + found,
    }
}

fn float(text: &[u8]) -> usize {
    let whole = integer(text);
    if whole == 0 {
        return negative_float(text);
    }
    let mut end = whole;
    if text.get(end) == Some(&b'.') {
        end += 1 + digits(text, end + 1);
    }
    if text.get(end).is_some_and(|it| it.eq_ignore_ascii_case(&b'e')) {
        let first = end + 1 + usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        match digits(text, first) {
            0 => {}
            found => end = first + found,
        }
    }
    if end > whole { end } else { 0 }
}

/// Length of `-NaN` or `-Infinity`.
fn negative_float(text: &[u8]) -> usize {
    let unsigned = text.strip_prefix(b"-").unwrap_or_default();
    let found = unsigned.get(..word(unsigned)).unwrap_or_default();
    let is = |keyword: &[u8]| found.eq_ignore_ascii_case(keyword);
    if is(b"nan") || is(b"infinity") { 1 + found.len() } else { 0 }
}

fn hex(text: &[u8]) -> usize {
    if text.starts_with(b"0x") || text.starts_with(b"0X") {
        2 + count(text, 2, u8::is_ascii_hexdigit)
    } else {
        0
    }
}

fn duration(text: &[u8]) -> usize {
    let start = sign(text);
    if text.get(start) == Some(&b'P') {
        return iso_duration(text, start + 1);
    }
    let mut end = start;
    while let number @ 1.. = digits(text, end)
        && let unit @ 1.. = unit(text.get(end + number..).unwrap_or_default())
    {
        end += number + unit;
    }
    if end == start { 0 } else { end }
}

/// Length of the unit of a duration at the start of a text.
fn unit(text: &[u8]) -> usize {
    let starts = |unit: &&str| {
        text.get(..unit.len()).is_some_and(|it| it.eq_ignore_ascii_case(unit.as_bytes()))
    };
    let units = ["mo", "ms", "us", "\u{b5}s", "ns", "y", "w", "d", "h", "m", "s"];
    units.iter().find(|it| starts(it)).map_or(0, |it| it.len())
}

/// Length of a duration of ISO 8601, whose `P` is before `start`.
fn iso_duration(text: &[u8], start: usize) -> usize {
    let alternative = shape(text, start, "0000-00-00T00:00:00");
    if alternative > 0 {
        return start + alternative;
    }
    let weeks = iso_fields(text, start, b"W");
    if weeks > start {
        return weeks;
    }
    let date = iso_fields(text, start, b"YMD");
    if text.get(date) == Some(&b'T') {
        let time = iso_fields(text, date + 1, b"HMS");
        if time > date + 1 {
            return time;
        }
    }
    if date > start { date } else { 0 }
}

/// The end of numbers that have some of these letters after them, in their order.
fn iso_fields(text: &[u8], start: usize, letters: &[u8]) -> usize {
    letters.iter().fold(start, |at, letter| match digits(text, at) {
        found if found > 0 && text.get(at + found) == Some(letter) => at + found + 1,
        _ => at,
    })
}

/// Length of `shape` if the text has it: `0` stands for a digit, `h` for a hexadecimal one.
fn shape(text: &[u8], start: usize, shape: &str) -> usize {
    let fits = |at: usize, wanted: u8| match (text.get(start + at), wanted) {
        (Some(byte), b'0') => byte.is_ascii_digit(),
        (Some(byte), b'h') => byte.is_ascii_hexdigit(),
        (found, wanted) => found == Some(&wanted),
    };
    if shape.bytes().enumerate().all(|(at, wanted)| fits(at, wanted)) { shape.len() } else { 0 }
}
