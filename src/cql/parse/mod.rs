//! The parser of CQL: the grammar of Cassandra 3.11, and the arithmetic of 4.0.
//!
//! Recursive descent over tokens that are made as they are needed: a statement costs time and
//! memory in proportion to its length. Only a few tokens are looked at ahead, and no rule is tried
//! twice. [`MAX_DEPTH`] bounds the recursion here and in all that walks the statement later.

mod lexer;
mod modifications;
mod names;
mod relations;
mod schema;
mod select;
mod terms;
#[cfg(test)]
mod tests;

use super::ast::{Parsed, Statement};
use lexer::{Kind, Lexer, Token};
use std::collections::VecDeque;

/// Most levels of terms, selectors, types or parentheses in each other.
const MAX_DEPTH: usize = 64;
/// Most bytes of the statement that an error quotes.
const MAX_QUOTE: usize = 100;

/// Memory of a parsed statement for each of its tokens, and for each byte of those.
const TOKEN_BYTES: usize = 128;
const TEXT_BYTES: usize = 4;

/// Texts up to this length are not looked through before they are parsed.
const SHORT_TEXT: usize = 64 << 10;

const PARENTHESES: (&str, &str) = ("(", ")");
const SQUARE_BRACKETS: (&str, &str) = ("[", "]");
const BRACES: (&str, &str) = ("{", "}");

/// A statement that is not CQL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}:{column} {message}")]
pub(in crate::cql) struct SyntaxError {
    /// The line, from 1, of the token at which the parser stopped.
    pub(in crate::cql) line: usize,
    /// The number of characters before the token in its line.
    pub(in crate::cql) column: usize,
    /// The reason.
    pub(in crate::cql) message: String,
}

/// The result of a rule of the grammar.
type Parse<T> = Result<T, SyntaxError>;

/// The text of a statement for logs: without comments, and with `?` for constants, which are data.
pub(in crate::cql) fn without_constants(text: &str) -> String {
    let mut lexer = Lexer::new(text);
    let (mut shown, mut end) = (String::new(), 0);
    loop {
        let token = lexer.next_token();
        match token.kind {
            Kind::End | Kind::Stray | Kind::Open => return shown,
            _ if token.start > end && !shown.is_empty() => shown.push(' '),
            _ => {}
        }
        let is_constant = matches!(token.kind, Kind::Constant(_));
        shown.push_str(if is_constant { "?" } else { token.text });
        end = token.start + token.text.len();
    }
}

/// Bytes of memory that a statement takes at most when it is parsed.
pub(in crate::cql) fn memory(text: &str) -> usize {
    let mut tokens = text.len();
    if tokens > SHORT_TEXT {
        let mut lexer = Lexer::new(text);
        let next = std::iter::repeat_with(|| lexer.next_token());
        tokens = next.take_while(|token| token.kind != Kind::End).count();
    }
    tokens.saturating_mul(TOKEN_BYTES).saturating_add(text.len().saturating_mul(TEXT_BYTES))
}

/// Parses one statement, which may end with semicolons.
pub(in crate::cql) fn parse(text: &str) -> Result<Parsed, SyntaxError> {
    let mut parser = Parser::new(text);
    let statement = parser.statement()?;
    if !matches!(statement, Statement::Unsupported(_)) {
        while parser.take(";") {}
        if parser.peek(0).kind != Kind::End {
            return Err(parser.expected("EOF"));
        }
    }
    Ok(Parsed { statement, markers: parser.markers })
}

/// A position in a text, and what was found before it.
struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// Tokens that were looked at but not taken.
    ahead: VecDeque<Token<'a>>,
    markers: Vec<Option<String>>,
    /// Number of rules that enclose the current one.
    depth: usize,
    /// The greatest depth within the current arithmetic expression.
    deepest: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            lexer: Lexer::new(text),
            ahead: VecDeque::new(),
            markers: Vec::new(),
            depth: 0,
            deepest: 0,
        }
    }

    fn statement(&mut self) -> Parse<Statement> {
        match self.peek(0).text.to_ascii_lowercase().as_str() {
            "select" => self.select().map(Statement::Select),
            "insert" | "update" | "delete" => self.modification().map(Statement::Modification),
            "begin" => self.batch().map(Statement::Batch),
            "use" => {
                self.bump();
                self.keyspace_name().map(Statement::Use)
            }
            "truncate" => {
                self.bump();
                let _ = self.take_word("table") || self.take_word("columnfamily");
                self.table_name().map(Statement::Truncate)
            }
            "create" | "alter" | "drop" => self.schema_statement(),
            "grant" | "revoke" | "list" => Ok(Statement::Unsupported("roles and permissions")),
            _ => Err(self.unexpected()),
        }
    }

    /// The token that comes after `count` others.
    fn peek(&mut self, count: usize) -> Token<'a> {
        while self.ahead.len() <= count {
            self.ahead.push_back(self.lexer.next_token());
        }
        self.ahead[count]
    }

    fn bump(&mut self) -> Token<'a> {
        let token = self.peek(0);
        self.ahead.pop_front();
        token
    }

    fn is(&mut self, symbol: &str) -> bool {
        self.peek(0).is_symbol(symbol)
    }

    fn is_word(&mut self, word: &str) -> bool {
        self.peek(0).is_word(word)
    }

    /// Takes a symbol if it comes next.
    fn take(&mut self, symbol: &str) -> bool {
        let is_next = self.is(symbol);
        if is_next {
            self.bump();
        }
        is_next
    }

    /// Takes a keyword if it comes next.
    fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.is_word(word);
        if is_next {
            self.bump();
        }
        is_next
    }

    fn expect(&mut self, symbol: &str) -> Parse<()> {
        if self.take(symbol) { Ok(()) } else { Err(self.expected(&format!("'{symbol}'"))) }
    }

    /// Takes these keywords, which have to come next.
    fn expect_words(&mut self, words: &[&str]) -> Parse<()> {
        for word in words {
            if !self.take_word(word) {
                return Err(self.expected(&format!("K_{}", word.to_ascii_uppercase())));
            }
        }
        Ok(())
    }

    /// Takes keywords if the first of them comes next. Then the others have to follow.
    fn take_words(&mut self, words: &[&str]) -> Parse<bool> {
        let is_next = words.first().is_some_and(|it| self.is_word(it));
        if is_next {
            self.expect_words(words)?;
        }
        Ok(is_next)
    }

    /// A clause, if its first keyword comes next.
    fn clause<T>(
        &mut self,
        words: &[&str],
        rule: impl FnOnce(&mut Self) -> Parse<T>,
    ) -> Parse<Option<T>> {
        if self.take_words(words)? { rule(self).map(Some) } else { Ok(None) }
    }

    /// Items with commas between them: at least one.
    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let first = item(self)?;
        self.list_after(first, item)
    }

    /// An item that is there already, and those that follow after commas.
    fn list_after<T>(&mut self, first: T, item: impl Fn(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut items = vec![first];
        while self.take(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Items with AND between them.
    fn conjunction<T>(&mut self, item: impl Fn(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.take_word("and") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A rule between brackets.
    fn enclosed<T>(
        &mut self,
        brackets: (&str, &str),
        rule: impl FnOnce(&mut Self) -> Parse<T>,
    ) -> Parse<T> {
        self.expect(brackets.0)?;
        let inner = rule(self)?;
        self.expect(brackets.1)?;
        Ok(inner)
    }

    /// Items between brackets: maybe none.
    fn listed<T>(
        &mut self,
        brackets: (&str, &str),
        item: impl Fn(&mut Self) -> Parse<T>,
    ) -> Parse<Vec<T>> {
        self.enclosed(brackets, |it| if it.is(brackets.1) { Ok(Vec::new()) } else { it.list(item) })
    }

    /// Items in parentheses: at least one.
    fn parenthesized<T>(&mut self, item: impl Fn(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        self.enclosed(PARENTHESES, |it| it.list(item))
    }

    /// Runs a rule one level deeper.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        self.depth += 1;
        self.reach(self.depth)?;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Notes that something lies at this depth.
    fn reach(&mut self, depth: usize) -> Parse<()> {
        self.deepest = self.deepest.max(depth);
        if self.deepest > MAX_DEPTH { Err(self.error("nested too deeply")) } else { Ok(()) }
    }

    /// An error about the next token.
    fn error(&mut self, message: impl Into<String>) -> SyntaxError {
        let start = self.peek(0).start;
        let before = self.text.get(..start).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        SyntaxError {
            line: before.matches('\n').count() + 1,
            column: line.chars().count(),
            message: message.into(),
        }
    }

    /// An error for a token that no rule begins with.
    fn unexpected(&mut self) -> SyntaxError {
        let token = self.peek(0);
        match token.kind {
            Kind::Stray => {
                self.error(format!("no viable alternative at character '{}'", token.text))
            }
            Kind::Open => {
                let end = match token.text.as_bytes().first() {
                    Some(b'/') => "*/",
                    Some(b'$') => "$$",
                    Some(b'"') => "\"",
                    _ => "'",
                };
                self.error(format!("mismatched character '<EOF>' expecting '{end}'"))
            }
            _ => self.error(format!("no viable alternative at input '{}'", quote(token))),
        }
    }

    /// An error for a token in the place of another.
    fn expected(&mut self, what: &str) -> SyntaxError {
        let token = self.peek(0);
        match token.kind {
            Kind::Stray | Kind::Open => self.unexpected(),
            _ => self.error(format!("mismatched input '{}' expecting {what}", quote(token))),
        }
    }
}

/// A token for an error.
fn quote(token: Token<'_>) -> String {
    match token.kind {
        Kind::End => "<EOF>".to_owned(),
        _ => shorten(&token.value()),
    }
}

/// A text for an error: its beginning, if it is long.
fn shorten(text: &str) -> String {
    match text.char_indices().find(|(at, _)| *at >= MAX_QUOTE) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
