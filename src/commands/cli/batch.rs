//! Statements from files and pipes.

use super::lexer::Lexer;
use super::mistake::Mistake;
use super::parser::statements;
use super::session::{Outcome, Session};
use crate::commands::output;
use std::io::{self, BufRead};
use std::path::Path;

/// Begins files of some editors.
const MARK: &[u8] = "\u{feff}".as_bytes();

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
        let (mut source, mut lexer, mut first_line, mut lines) =
            (String::new(), Lexer::default(), 1, 0);
        let (mut line, mut strange) = (Vec::new(), None);
        loop {
            output::text(self.prompt);
            lines += 1;
            line.clear();
            let read = input
                .read_until(b'\n', &mut line)
                .map_err(|error| io::Error::new(error.kind(), format!("line {lines}: {error}")));
            let is_end = read? == 0;
            let text = if lines == 1 { line.strip_prefix(MARK).unwrap_or(&line) } else { &line };
            if let Err(error) = str::from_utf8(text) {
                strange.get_or_insert(source.len() + error.valid_up_to());
            }
            source.push_str(&String::from_utf8_lossy(text));
            if is_end && source.is_empty() {
                return Ok(self.is_well);
            }
            if lexer.read(&source).is_some() && !is_end {
                continue;
            }
            let origin = file.map(|file| format!("{}:{first_line}: ", file.display()));
            let origin = origin.unwrap_or_default();
            let goes_on = match strange.take() {
                Some(at) => self.refuse(at, &source, &origin),
                None => self.run_all(&source, &origin),
            };
            if !goes_on {
                return Ok(self.is_well);
            }
            source.clear();
            lexer = Lexer::default();
            first_line = lines + 1;
        }
    }

    /// Runs nothing of lines that are no text at this place; returns whether to go on.
    fn refuse(&mut self, at: usize, source: &str, origin: &str) -> bool {
        let mistake = Mistake::at(at..at, "no UTF-8: nothing of this is run");
        mistake.tell(source, origin, self.session.printer.layout);
        self.is_well = false;
        !self.stops
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
