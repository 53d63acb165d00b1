//! Failures of statements, with the word that they are about.

use super::lexer::Span;
use super::printer::Layout;

/// Why a statement has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake {
    text: String,
    span: Option<Span>,
    /// Stands behind the mark at the word.
    hint: String,
    is_syntax: bool,
    /// The last line of the original.
    end: &'static str,
    /// Whether the original said it on the standard output.
    is_output: bool,
}

impl Mistake {
    pub(super) fn new(text: impl Into<String>) -> Self {
        let (text, hint) = (text.into(), String::new());
        Self { text, span: None, hint, is_syntax: false, end: "", is_output: false }
    }

    /// A text that is about this word.
    pub(super) fn at(span: Span, text: impl Into<String>) -> Self {
        Self { span: Some(span), ..Self::new(text) }
    }

    /// A statement that makes no sense at this word.
    pub(super) fn syntax(span: Span, text: impl Into<String>) -> Self {
        Self { is_syntax: true, ..Self::at(span, text) }
    }

    /// A statement that does not exist, in the words of the original.
    pub(super) fn unknown(span: Span, word: &str, known: &[&str]) -> Self {
        let mistake = Self::syntax(span, format!("no viable alternative at input '{word}'"));
        Self { end: "Invalid Statement (Type: 0)", ..mistake }
            .or_meant(&word.to_ascii_lowercase(), known.iter().copied())
            .hinted_if_bare("type 'help' for all statements")
    }

    /// The same, about this word.
    #[must_use]
    pub(super) fn about(self, span: Span) -> Self {
        Self { span: Some(span), ..self }
    }

    /// The same, said on the standard output in the layout of the original.
    #[must_use]
    pub(super) fn on_output(self) -> Self {
        Self { is_output: true, ..self }
    }

    /// Adds a hint.
    #[must_use]
    pub(super) fn hinted(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    fn hinted_if_bare(self, hint: &str) -> Self {
        if self.hint.is_empty() { self.hinted(hint) } else { self }
    }

    /// Adds the known word that is most like a wrong one, if one is.
    #[must_use]
    pub(super) fn or_meant<'k>(self, word: &str, known: impl Iterator<Item = &'k str>) -> Self {
        let distance = |known: &str| strsim::damerau_levenshtein(word, known);
        let nearest = known.min_by_key(|known| distance(known));
        match nearest.filter(|it| distance(it) <= word.len().min(it.len()) / 2) {
            Some(nearest) => self.hinted(format!("did you mean '{nearest}'?")),
            None => self,
        }
    }

    /// Prints the text, and the line of the statement with a mark below the word.
    pub(super) fn tell(&self, source: &str, origin: &str, layout: Layout) {
        let text = format!("{}{}", self.position(source), self.text);
        if self.is_output && layout == Layout::Original {
            say!("{text}");
        } else {
            complain!("{origin}{text}");
        }
        let marked = self.marked(source);
        if !marked.is_empty() {
            complain!("{marked}");
        }
        if !self.end.is_empty() {
            complain!("{}", self.end);
        }
    }

    /// Where a statement makes no sense, as the original counts lines and columns.
    fn position(&self, source: &str) -> String {
        let Some(span) = self.span.as_ref().filter(|_| self.is_syntax) else {
            return String::new();
        };
        let before = &source[..span.start];
        let line = before.rsplit('\n').next().unwrap_or_default();
        format!("line {}:{} ", before.matches('\n').count() + 1, line.chars().count())
    }

    /// The line of the word and a mark below it; without a word the hint alone.
    fn marked(&self, source: &str) -> String {
        let Some(span) = &self.span else { return self.hint.clone() };
        let start = source[..span.start].rfind('\n').map_or(0, |at| at + 1);
        let line = source[start..].lines().next().unwrap_or_default().replace('\t', " ");
        let column = source[start..span.start].chars().count();
        let word = source[span.clone()].lines().next().unwrap_or_default();
        let (blanks, mark) = (" ".repeat(column), "^".repeat(word.chars().count().max(1)));
        format!("{line}\n{blanks}{mark} {}", self.hint).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_below_its_word_however_far_that_is() {
        let line = format!("{} bad", "é".repeat(70_000));
        let marked = Mistake::at(140_001..140_004, "").hinted("this").marked(&line);
        assert_eq!(marked, format!("{line}\n{}^^^ this", " ".repeat(70_001)));
    }
}
