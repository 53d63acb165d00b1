//! Completion of words, and lines that go on.

use super::lexer::lex;
use super::parser::VERBS;
use crate::thrift::idl::ConsistencyLevel;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};

/// Helps with the line that is being typed.
#[derive(Debug, Default)]
pub(super) struct Assistant {
    /// Column families with their keyspaces, and without that of `use`.
    pub(super) families: Vec<String>,
}

impl Assistant {
    /// Words that may stand behind a text, and where the one begins that they replace.
    fn candidates(&self, before: &str) -> (usize, Vec<String>) {
        let start = before.rfind([' ', '\t', '\n', ';']).map_or(0, |at| at + 1);
        let statement = &before[before[..start].rfind(';').map_or(0, |at| at + 1)..start];
        let words: Vec<String> =
            statement.split_whitespace().map(str::to_ascii_lowercase).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let levels = ConsistencyLevel::SCHEMA.values.iter().map(|(name, _)| *name);
        let fixed = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let known: Vec<String> = match words.as_slice() {
            [] => fixed(&VERBS),
            ["get" | "set" | "count" | "del" | "list" | "assume"] => self.families.clone(),
            ["describe"] => {
                let families = self.families.iter().cloned();
                std::iter::once("keyspace".to_owned()).chain(families).collect()
            }
            ["describe", "keyspace"] | ["use"] => {
                let keyspaces = self.families.iter().filter_map(|name| name.split_once('.'));
                let mut keyspaces: Vec<String> =
                    keyspaces.map(|(name, _)| name.to_owned()).collect();
                keyspaces.dedup();
                keyspaces
            }
            ["show"] => fixed(&["api version", "cluster name", "config file", "keyspaces"]),
            ["show", "api"] => fixed(&["version"]),
            ["show", "cluster"] => fixed(&["name"]),
            ["show", "config"] => fixed(&["file"]),
            ["help"] => fixed(&VERBS),
            ["consistencylevel"] => fixed(&["as"]),
            ["consistencylevel", "as"] => levels.map(str::to_owned).collect(),
            ["assume", _] => {
                fixed(&["comparator", "sub_comparator", "validator", "keys", "column"])
            }
            ["assume", _, ..] => fixed(&["as"]),
            ["get", ..] => fixed(&["from", "to", "limit", "forward"]),
            ["list", ..] => fixed(&["from", "to", "limit", "columns"]),
            _ => Vec::new(),
        };
        let typed = &before[start..];
        let fits = |word: &String| {
            word.get(..typed.len()).is_some_and(|head| head.eq_ignore_ascii_case(typed))
        };
        (start, known.into_iter().filter(fits).collect())
    }
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.candidates(&line[..at]))
    }
}

/// A line goes on below while something in it is not closed.
impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_open = lex(context.input()).open.is_some();
        Ok(if is_open { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {}

impl Helper for Assistant {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_its_words() {
        let families = ["Blog.Authors", "Blog.Entries", "Entries"].map(str::to_owned).to_vec();
        let assistant = Assistant { families };
        for (before, start, expected) in [
            ("", 0, &VERBS[..]),
            ("co", 0, &["connect", "count", "consistencylevel"]),
            ("GET bl", 4, &["Blog.Authors", "Blog.Entries"]),
            ("get Blog.E", 4, &["Blog.Entries"]),
            ("show keyspaces; get E", 20, &["Entries"]),
            ("describe ", 9, &["keyspace", "Blog.Authors", "Blog.Entries", "Entries"]),
            ("describe keyspace ", 18, &["Blog"]),
            ("show c", 5, &["cluster name", "config file"]),
            ("get Blog.Entries['a'] li", 22, &["limit"]),
            ("consistencylevel as q", 20, &["QUORUM"]),
            ("exit ", 5, &[]),
        ] {
            let (at, found) = assistant.candidates(before);
            assert_eq!(
                (at, found.as_slice()),
                (start, expected.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>().as_slice()),
                "{before:?}"
            );
        }
    }
}
