//! Remarks on a configuration that the server runs with nevertheless.

use std::fmt;

/// The most notes that are kept of one file.
pub const MAX_NOTES: usize = 200;

/// A remark on one line of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its weight.
    pub level: NoteLevel,
    /// The line it is about.
    pub line: u32,
    /// The remark.
    pub text: String,
}

/// Weight of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteLevel {
    /// The setting is understood and has no effect here.
    Info,
    /// The operator probably meant something else.
    Warning,
}

impl fmt::Display for NoteLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
        })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.level, self.text)
    }
}

/// Notes in the making: bounded, at last in the order of lines.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<Note>);

impl Notes {
    pub(super) fn warn(&mut self, line: u32, text: String) {
        self.add(NoteLevel::Warning, line, text);
    }

    pub(super) fn info(&mut self, line: u32, text: String) {
        self.add(NoteLevel::Info, line, text);
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() > MAX_NOTES
    }

    fn add(&mut self, level: NoteLevel, line: u32, text: String) {
        if self.0.len() < MAX_NOTES {
            self.0.push(Note { level, line, text });
        } else if self.0.len() == MAX_NOTES {
            let text = "further notes on this file are left out".to_owned();
            self.0.push(Note { level: NoteLevel::Warning, line, text });
        }
    }

    pub(super) fn into_sorted(mut self) -> Vec<Note> {
        self.0.sort_by_key(|note| note.line);
        self.0
    }
}
