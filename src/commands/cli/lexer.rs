//! Words of statements, with their places.

use std::borrow::Cow;
use std::ops::Range;

/// A part of a statement, in bytes.
pub(super) type Span = Range<usize>;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Letters, digits, `_` and `-`, after a letter or digit.
    Word,
    /// Text in single quotes.
    Quoted,
    /// Any other character.
    Sign(char),
}

/// A token and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Span,
}

/// The tokens of an input.
#[derive(Debug, Default)]
pub(super) struct Lexed {
    pub(super) tokens: Vec<Token>,
    /// A quote, comment, parenthesis or bracket that is not closed, or a backslash at the end.
    pub(super) open: Option<Span>,
}

/// Cuts an input into tokens. Blanks and comments are left out.
pub(super) fn lex(source: &str) -> Lexed {
    let mut lexed = Lexed::default();
    let mut brackets: Vec<(char, usize)> = Vec::new();
    let mut at = 0;
    while let Some(next) = source[at..].chars().next() {
        let rest = &source[at..];
        let (kind, length) = match next {
            _ if next.is_whitespace() => (None, next.len_utf8()),
            '-' if rest.starts_with("--") => (None, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => match rest[2..].find("*/") {
                Some(end) => (None, end + 4),
                None => return lexed.open_at(at..at + 2),
            },
            '\\' if rest[1..].trim().is_empty() => return lexed.open_at(at..at + 1),
            // A backslash and the end of its line are a blank.
            '\\' if rest[1..].trim_start_matches([' ', '\r']).starts_with('\n') => (None, 1),
            '\'' => match quoted_length(rest) {
                Some(length) => (Some(Kind::Quoted), length),
                None => return lexed.open_at(at..at + 1),
            },
            _ if next.is_ascii_alphanumeric() => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                // A comment may stand right behind a word.
                let length = rest.find("--").map_or(length, |comment| length.min(comment));
                (Some(Kind::Word), length)
            }
            _ => (Some(Kind::Sign(next)), next.len_utf8()),
        };
        match next {
            '(' | '[' => brackets.push((next, at)),
            ')' => drop(brackets.pop_if(|(open, _)| *open == '(')),
            ']' => drop(brackets.pop_if(|(open, _)| *open == '[')),
            // Brackets do not reach beyond the statement.
            ';' => brackets.clear(),
            _ => {}
        }
        if let Some(kind) = kind {
            lexed.tokens.push(Token { kind, span: at..at + length });
        }
        at += length;
    }
    lexed.open = brackets.first().map(|(_, at)| *at..*at + 1);
    lexed
}

impl Lexed {
    fn open_at(self, span: Span) -> Self {
        Self { open: Some(span), ..self }
    }
}

/// Length of a text in quotes. Two quotes within it stand for one. A backslash protects no quote:
/// `'C:\'` ends where it seems to.
fn quoted_length(text: &str) -> Option<usize> {
    let mut quotes = text.match_indices('\'').map(|(at, _)| at).skip(1).peekable();
    while let Some(quote) = quotes.next() {
        if quotes.next_if_eq(&(quote + 1)).is_none() {
            return Some(quote + 1);
        }
    }
    None
}

/// The text between quotes, with the escapes of SQL. A backslash at the end is one.
pub(super) fn unquoted(token: &str) -> Cow<'_, str> {
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains(['\\', '\'']) {
        return Cow::Borrowed(inner);
    }
    let mut text = String::with_capacity(inner.len());
    let mut characters = inner.chars().peekable();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' { characters.next() } else { None };
        text.push(match escaped {
            None => character,
            Some('0') => '\0',
            Some('b') => '\u{8}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('Z') => '\u{1a}',
            Some(other) => other,
        });
        if escaped.unwrap_or(character) == '\'' {
            // The second of the pair.
            characters.next_if_eq(&'\'');
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        lex(source).tokens.into_iter().map(|token| &source[token.span]).collect()
    }

    #[test]
    fn comments_and_blanks_are_left_out() {
        assert_eq!(words("get K.C['a b']--c"), ["get", "K", ".", "C", "[", "'a b'", "]"]);
        assert_eq!(words("show /* ' */ keyspaces;-- '"), ["show", "keyspaces", ";"]);
        assert_eq!(words("show \\\n keyspaces"), ["show", "keyspaces"]);
    }

    #[test]
    fn what_is_not_closed_is_found() {
        let open = |source: &str| lex(source).open;
        assert_eq!(open("get K.C['a'"), Some(7..8));
        assert_eq!(open("set K.C['a'] = 'it''s"), Some(15..16));
        assert_eq!(open("show /* all"), Some(5..7));
        assert_eq!(open("show \\"), Some(5..6));
        assert_eq!(open("get K.C['C:\\']"), None);
        assert_eq!(open("get K.C[; show keyspaces"), None);
    }

    #[test]
    fn quotes_and_escapes() {
        for (quoted, text) in [
            ("''", ""),
            ("'it''s'", "it's"),
            (r"'a\nb\\c\t\Z\%\q'", "a\nb\\c\t\u{1a}%q"),
            (r"'it\''s'", "it's"),
            (r"'C:\dir\'", "C:dir\\"),
        ] {
            assert_eq!(quoted_length(quoted), Some(quoted.len()));
            assert_eq!(unquoted(quoted), text);
        }
    }
}
