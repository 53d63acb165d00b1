//! The grammar of statements: that of the original, and more of its kind.

use super::lexer::{Kind, Lexed, Lexer, Span, Token, lex, unquoted};
use super::mistake::Mistake;
use super::statement::{Family, Name, Part, Path, Property, Slice, Statement, Term, TermKind};
use crate::thrift::idl::ConsistencyLevel;

/// Greatest depth of terms within terms.
const MAX_DEPTH: usize = 8;

/// The first words of all statements.
pub(super) const VERBS: [&str; 15] = [
    "?",
    "help",
    "exit",
    "quit",
    "connect",
    "show",
    "describe",
    "use",
    "get",
    "list",
    "count",
    "set",
    "del",
    "consistencylevel",
    "assume",
];

/// The statements of an input, with the semicolons at their ends.
pub(super) fn statements(source: &str) -> Vec<Span> {
    let Lexed { tokens, open } = lex(source);
    let (mut found, mut start) = (Vec::new(), None);
    for token in tokens {
        let begin = *start.get_or_insert(token.span.start);
        if token.kind == Kind::Sign(';') {
            found.push(begin..token.span.end);
            start = None;
        }
    }
    let start = start.or(open.map(|open| open.start));
    found.extend(start.map(|start| start..source.trim_end().len()));
    found
}

/// Parts of a text, of one line each unless a statement goes on in the next one.
pub(super) fn whole_lines(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut end) = (Vec::new(), 0, 0);
    let mut lexer = Lexer::default();
    for line in text.split_inclusive('\n') {
        end += line.len();
        let part = &text[start..end];
        if lexer.read(part).is_none() || end == text.len() {
            found.push(part);
            (start, lexer) = (end, Lexer::default());
        }
    }
    found
}

/// Reads a statement; `None` if there is nothing but blanks and comments.
pub(super) fn parse(source: &str) -> Result<Option<Statement>, Mistake> {
    let Lexed { tokens, open } = lex(source);
    if let Some(open) = open {
        let what = format!("{} is not closed", &source[open.clone()]);
        return Err(Mistake::syntax(open, what));
    }
    let mut parser = Parser { source, tokens: &tokens, at: 0 };
    if parser.sign(';') {
        return parser.end().map(|()| None);
    }
    let Some(verb) = parser.next() else { return Ok(None) };
    let statement = parser.statement(&verb)?;
    parser.sign(';');
    parser.end()?;
    Ok(Some(statement))
}

struct Parser<'a> {
    source: &'a str,
    tokens: &'a [Token],
    at: usize,
}

type Parsed<T> = Result<T, Mistake>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    fn text(&self, token: &Token) -> &'a str {
        &self.source[token.span.clone()]
    }

    /// Place of the next token, or the end.
    fn place(&self) -> Span {
        let end = self.source.trim_end().len();
        self.peek().map_or(end..end, |token| token.span.clone())
    }

    fn expected<T>(&self, what: &str) -> Parsed<T> {
        let found = match self.peek() {
            Some(token) => format!("expected {what}, found {}", self.text(token)),
            None => format!("expected {what} at the end"),
        };
        Err(Mistake::syntax(self.place(), found))
    }

    fn end(&self) -> Parsed<()> {
        if self.peek().is_none() { Ok(()) } else { self.expected("the end of the statement") }
    }

    fn sign(&mut self, sign: char) -> bool {
        let is_next = self.peek().is_some_and(|token| token.kind == Kind::Sign(sign));
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: char) -> Parsed<()> {
        if self.sign(sign) { Ok(()) } else { self.expected(&format!("'{sign}'")) }
    }

    fn is_keyword(&self, keyword: &str) -> bool {
        self.peek().is_some_and(|token| {
            token.kind == Kind::Word && self.text(token).eq_ignore_ascii_case(keyword)
        })
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let is_next = self.is_keyword(keyword);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes one of these keywords.
    fn word<'w>(&mut self, words: &[&'w str]) -> Parsed<&'w str> {
        if let Some(word) = words.iter().find(|word| self.is_keyword(word)) {
            self.at += 1;
            return Ok(word);
        }
        self.expected(&words.join(" or "))
    }

    /// Whether the statement goes on.
    fn is_more(&self) -> bool {
        self.peek().is_some_and(|token| token.kind != Kind::Sign(';'))
    }

    fn name(&mut self, what: &str) -> Parsed<Name> {
        match self.peek() {
            Some(token) if token.kind == Kind::Word => {
                self.at += 1;
                Ok(Name { text: self.text(token).to_owned(), span: token.span.clone() })
            }
            _ => self.expected(what),
        }
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        let number = self.peek().and_then(|token| self.text(token).parse().ok());
        match number {
            Some(number) => {
                self.at += 1;
                Ok(number)
            }
            None => self.expected(what),
        }
    }

    fn statement(&mut self, verb: &Token) -> Parsed<Statement> {
        let word = self.text(verb).to_ascii_lowercase();
        match word.as_str() {
            "help" | "?" => {
                let name = if self.is_more() { Some(self.name("a statement")?) } else { None };
                Ok(Statement::Help(name))
            }
            "exit" | "quit" => Ok(Statement::Exit),
            "connect" => self.connect(),
            "show" => self.show(),
            "describe" if self.keyword("keyspace") => {
                self.name("a keyspace").map(Statement::DescribeKeyspace)
            }
            "describe" => self.family().map(Statement::DescribeFamily),
            "use" => self.name("a keyspace").map(Statement::Use),
            "get" => {
                let path = self.path()?;
                Ok(Statement::Get(path, self.slice(false)?))
            }
            "list" => self.list(),
            "count" => self.path().map(Statement::Count),
            "set" => {
                let path = self.path()?;
                self.expect('=')?;
                let value = self.term(MAX_DEPTH)?;
                Ok(Statement::Set { path, value })
            }
            "del" => self.path().map(Statement::Del),
            "consistencylevel" => self.level(),
            "assume" => self.assume(),
            _ => Err(Mistake::unknown(verb.span.clone(), self.text(verb), &VERBS)),
        }
    }

    fn connect(&mut self) -> Parsed<Statement> {
        let start = self.place().start;
        while !matches!(self.peek().map(|token| token.kind), None | Some(Kind::Sign('/'))) {
            self.at += 1;
        }
        let host = self.source[start..self.place().start].trim().to_owned();
        if host.is_empty() {
            return self.expected("a host");
        }
        self.expect('/')?;
        let port = self.number("a port")?;
        Ok(Statement::Connect { host, port })
    }

    fn show(&mut self) -> Parsed<Statement> {
        let (property, rest) = match self.word(&["cluster", "config", "api", "keyspaces"])? {
            "cluster" => (Property::ClusterName, Some("name")),
            "config" => (Property::ConfigFile, Some("file")),
            "api" => (Property::ApiVersion, Some("version")),
            _ => (Property::Keyspaces, None),
        };
        rest.map(|rest| self.word(&[rest])).transpose()?;
        Ok(Statement::Show(property))
    }

    fn list(&mut self) -> Parsed<Statement> {
        let family = self.family()?;
        let rows = self.slice(true)?;
        Ok(Statement::List { family, rows })
    }

    fn level(&mut self) -> Parsed<Statement> {
        if !self.is_more() {
            return Ok(Statement::Level(None));
        }
        self.word(&["as"])?;
        let names: Vec<&str> =
            ConsistencyLevel::SCHEMA.values.iter().map(|(name, _)| *name).collect();
        let name = self.word(&names)?;
        let number = ConsistencyLevel::SCHEMA.values.iter().find(|(it, _)| *it == name);
        Ok(Statement::Level(number.and_then(|(_, it)| ConsistencyLevel::from_number(*it))))
    }

    fn assume(&mut self) -> Parsed<Statement> {
        let family = self.family()?;
        let words = ["comparator", "sub_comparator", "validator", "keys", "column"];
        let part = match self.word(&words)? {
            "comparator" => Part::Comparator,
            "sub_comparator" => Part::SubComparator,
            "validator" => Part::Validator,
            "keys" => Part::Keys,
            _ => Part::Column(self.term(MAX_DEPTH)?),
        };
        self.word(&["as"])?;
        let mut span = self.name("a type")?.span;
        // A class may have parameters.
        while self.is_more() {
            span.end = self.place().end;
            self.at += 1;
        }
        let type_name = Name { text: self.source[span.clone()].to_owned(), span };
        Ok(Statement::Assume { family, part, type_name })
    }

    fn family(&mut self) -> Parsed<Family> {
        let first = self.name("a column family")?;
        if !self.sign('.') {
            return Ok(Family { keyspace: None, name: first });
        }
        let name = self.name("a column family")?;
        Ok(Family { keyspace: Some(first), name })
    }

    fn path(&mut self) -> Parsed<Path> {
        let family = self.family()?;
        self.expect('[')?;
        let key = self.term(MAX_DEPTH)?;
        self.expect(']')?;
        let mut columns = Vec::new();
        while columns.len() < 2 && self.sign('[') {
            columns.push(self.term(MAX_DEPTH)?);
            self.expect(']')?;
        }
        Ok(Path { family, key, columns })
    }

    /// Reads clauses in any order; `columns` only where rows are listed.
    fn slice(&mut self, is_of_rows: bool) -> Parsed<Slice> {
        let mut slice = Slice::default();
        while self.is_more() {
            if slice.from.is_none() && self.keyword("from") {
                slice.from = Some(self.term(MAX_DEPTH)?);
            } else if slice.to.is_none() && self.keyword("to") {
                slice.to = Some(self.term(MAX_DEPTH)?);
            } else if slice.limit.is_none() && self.keyword("limit") {
                slice.limit = Some(self.number("a number")?);
            } else if is_of_rows && slice.columns.is_none() && self.keyword("columns") {
                slice.columns = Some(self.number("a number")?);
            } else if !is_of_rows && self.keyword("forward") {
                slice.is_forward = true;
            } else if is_of_rows || !self.keyword("reversed") {
                let last = if is_of_rows { "columns" } else { "forward, reversed" };
                return self.expected(&format!("from, to, limit, {last} or the end"));
            }
        }
        Ok(slice)
    }

    fn term(&mut self, depth: usize) -> Parsed<Term> {
        let span = self.place();
        match self.peek().map(|token| token.kind) {
            Some(Kind::Quoted) => {
                self.at += 1;
                let text = unquoted(&self.source[span.clone()]).into_owned();
                Ok(Term { kind: TermKind::Text(text), span })
            }
            Some(Kind::Word)
                if self.tokens.get(self.at + 1).is_some_and(|next| {
                    next.kind == Kind::Sign('(') && next.span.start == span.end
                }) =>
            {
                self.typed(depth)
            }
            _ => self
                .bare(|parser, last| parser.peek().is_some_and(|next| next.span.start == last.end)),
        }
    }

    /// Reads `type(…)`.
    fn typed(&mut self, depth: usize) -> Parsed<Term> {
        let Some(depth) = depth.checked_sub(1) else { return self.expected("a simpler value") };
        let start = self.place().start;
        let type_name = self.name("a type")?.text;
        self.expect('(')?;
        let mut arguments = Vec::new();
        while !self.sign(')') {
            if !arguments.is_empty() {
                self.expect(',')?;
            }
            let is_bare = |parser: &Self, _: &Span| parser.peek().is_some();
            let argument = match self.peek().map(|token| token.kind) {
                Some(Kind::Quoted) => self.term(depth)?,
                Some(Kind::Word) if self.is_call() => self.typed(depth)?,
                _ => self.bare(is_bare)?,
            };
            arguments.push(argument);
        }
        let end = self.tokens[self.at - 1].span.end;
        Ok(Term { kind: TermKind::Typed { type_name, arguments }, span: start..end })
    }

    fn is_call(&self) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|next| next.kind == Kind::Sign('('))
    }

    /// Reads text without quotes: what follows each other, as long as it goes on.
    fn bare(&mut self, goes_on: impl Fn(&Self, &Span) -> bool) -> Parsed<Term> {
        let start = self.place().start;
        let mut last = start..start;
        while let Some(token) = self.peek() {
            let is_part = match token.kind {
                Kind::Word => true,
                Kind::Sign(sign) => ".:+-/".contains(sign),
                Kind::Quoted => false,
            };
            if !is_part || (last.end > start && !goes_on(self, &last)) {
                break;
            }
            last = token.span.clone();
            self.at += 1;
        }
        let span = start..last.end;
        if span.is_empty() {
            return self.expected("a value, as 'text' or type(…)");
        }
        Ok(Term { kind: TermKind::Text(self.source[span.clone()].to_owned()), span })
    }
}
