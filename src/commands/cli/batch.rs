//! Statements from files and pipes.

use super::lexer::lex;
use super::parser::statements;
use super::session::{Outcome, Session};
use crate::commands::output;
use std::io::{self, BufRead};
use std::path::Path;

/// Runs statements line by line.
pub(super) struct Batch<'s> {
    session: &'s mut Session,
    stops: bool,
    /// Printed before each line is read.
    prompt: &'static str,
    is_well: bool,
}

impl<'s> Batch<'s> {
    pub(super) fn new(session: &'s mut Session, stops: bool, prompt: &'static str) -> Self {
        Self { session, stops, prompt, is_well: true }
    }

    /// Runs all statements; returns whether none has failed. Statements of a file that fail are
    /// named by their lines.
    pub(super) fn run(mut self, mut input: impl BufRead, file: Option<&Path>) -> io::Result<bool> {
        let (mut source, mut first_line, mut lines) = (String::new(), 1, 0);
        loop {
            output::text(self.prompt);
            lines += 1;
            let read = input
                .read_line(&mut source)
                .map_err(|error| io::Error::new(error.kind(), format!("line {lines}: {error}")));
            let is_end = read? == 0;
            if source.is_empty() {
                return Ok(self.is_well);
            }
            if lex(&source).open.is_some() && !is_end {
                continue;
            }
            let origin = file.map(|file| format!("{}:{first_line}: ", file.display()));
            if !self.run_all(&source, &origin.unwrap_or_default()) {
                return Ok(self.is_well);
            }
            source.clear();
            first_line = lines + 1;
        }
    }

    /// Runs the statements of some lines; returns whether to go on.
    fn run_all(&mut self, source: &str, origin: &str) -> bool {
        for span in statements(source) {
            match self.session.run(&source[span], origin) {
                Outcome::Done => {}
                Outcome::Failed => self.is_well = false,
                Outcome::Exit => return false,
            }
            if self.stops && !self.is_well {
                return false;
            }
        }
        true
    }
}
