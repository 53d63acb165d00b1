//! A reader of short texts from front to end.

/// The rest of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes this character if it is the next.
    pub(super) fn eat(&mut self, character: char) -> bool {
        let rest = self.rest.strip_prefix(character);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes this ASCII text, in upper or lower case, if it is the next.
    pub(super) fn eat_ignoring_case(&mut self, text: &str) -> bool {
        let is_next = self.rest.get(..text.len()).is_some_and(|it| it.eq_ignore_ascii_case(text));
        if is_next {
            self.rest = self.rest.get(text.len()..).unwrap_or_default();
        }
        is_next
    }

    /// Takes the characters up to the first that is not of the kind.
    pub(super) fn take_while(&mut self, is_of_kind: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !is_of_kind(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    pub(super) fn skip_blanks(&mut self) {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\n'));
    }

    /// Takes one digit or more.
    pub(super) fn digits(&mut self) -> Option<&'a str> {
        let digits = self.take_while(|c| c.is_ascii_digit());
        (!digits.is_empty()).then_some(digits)
    }

    /// Takes a number of one digit or more, up to so many.
    pub(super) fn number(&mut self, most_digits: usize) -> Option<i64> {
        let digits = self.digits()?;
        if digits.len() > most_digits { None } else { digits.parse().ok() }
    }

    pub(super) fn next_is_digit(&self) -> bool {
        self.rest.starts_with(|c: char| c.is_ascii_digit())
    }
}
