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
    let mut lexer = Lexer::default();
    let open = lexer.read(source);
    Lexed { tokens: lexer.tokens, open }
}

/// Reads an input that grows line by line.
#[derive(Debug, Default)]
pub(super) struct Lexer {
    tokens: Vec<Token>,
    /// Those that are open.
    brackets: Vec<(char, usize)>,
    /// Where the next token begins.
    at: usize,
    /// Where to look on for the end of the quote or comment that begins there.
    searched: usize,
}

impl Lexer {
    /// Reads on in an input that was shorter before; returns what is open at its end.
    pub(super) fn read(&mut self, source: &str) -> Option<Span> {
        while let Some(next) = source[self.at..].chars().next() {
            let (at, rest) = (self.at, &source[self.at..]);
            let (kind, length) = match next {
                _ if next.is_whitespace() => (None, next.len_utf8()),
                '-' if rest.starts_with("--") => (None, rest.find('\n').unwrap_or(rest.len())),
                '/' if rest.starts_with("/*") => {
                    let from = self.searched.max(at + 2);
                    let Some(end) = source[from..].find("*/") else {
                        self.searched = source.len();
                        return Some(at..at + 2);
                    };
                    (None, from + end + 2 - at)
                }
                '\\' if rest[1..].trim_start().is_empty() => return Some(at..at + 1),
                // A backslash and the end of its line are a blank.
                '\\' if rest[1..].trim_start_matches([' ', '\r']).starts_with('\n') => (None, 1),
                '\'' => {
                    let from = self.searched.max(at + 1);
                    let Some(end) = quote_end(&source[from..]) else {
                        self.searched = source.len();
                        return Some(at..at + 1);
                    };
                    (Some(Kind::Quoted), from + end - at)
                }
                _ if next.is_ascii_alphanumeric() => (Some(Kind::Word), word_length(rest)),
                _ => (Some(Kind::Sign(next)), next.len_utf8()),
            };
            match next {
                '(' | '[' => self.brackets.push((next, at)),
                ')' => drop(self.brackets.pop_if(|(open, _)| *open == '(')),
                ']' => drop(self.brackets.pop_if(|(open, _)| *open == '[')),
                // Brackets do not reach beyond the statement.
                ';' => self.brackets.clear(),
                _ => {}
            }
            if let Some(kind) = kind {
                self.tokens.push(Token { kind, span: at..at + length });
            }
            self.at += length;
        }
        self.brackets.first().map(|(_, at)| *at..*at + 1)
    }
}

/// Length of a word. A comment may stand right behind it.
fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_part = |at: usize| match bytes[at] {
        b'-' => bytes.get(at + 1) != Some(&b'-'),
        byte => byte.is_ascii_alphanumeric() || byte == b'_',
    };
    (0..bytes.len()).find(|at| !is_part(*at)).unwrap_or(bytes.len())
}

/// The place behind the quote that ends a text. Two quotes within it stand for one. A backslash
/// protects no quote: `'C:\'` ends where it seems to.
fn quote_end(text: &str) -> Option<usize> {
    let mut quotes = text.match_indices('\'').map(|(at, _)| at).peekable();
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
    fn an_input_that_grows_is_read_as_if_it_had_come_whole() {
        for source in [
            "set K.C['a'] = 'it''s\nopen'\n",
            "set /* all\n'of * it\n*/ K.C[\n'a' --\n] = \\\n\n'b''\n'' ' \n;",
            "'\n'\n'\n''\n",
        ] {
            let mut lexer = Lexer::default();
            let ends = source.match_indices('\n').map(|(at, _)| at + 1).chain([source.len()]);
            for end in ends {
                let open = lexer.read(&source[..end]);
                let whole = lex(&source[..end]);
                assert_eq!((&lexer.tokens, open), (&whole.tokens, whole.open), "{end}: {source}");
            }
        }
    }

    #[test]
    fn words_end_before_comments() {
        assert_eq!(words("a-b--c"), ["a-b"]);
        assert_eq!(words("a-\nb_1-é"), ["a-", "b_1-", "é"]);
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
            assert_eq!(quote_end(&quoted[1..]), Some(quoted.len() - 1));
            assert_eq!(unquoted(quoted), text);
        }
    }
}
