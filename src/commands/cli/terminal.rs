//! A session with a person at a terminal: editing, history, completion, pager.

use super::completion::Assistant;
use super::parser::{statements, whole_lines};
use super::session::{Outcome, Session};
use crate::commands::output::Failure;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use std::path::PathBuf;
use std::process::ExitCode;

/// Statements that are remembered.
const HISTORY: usize = 1000;

pub(super) const PROMPT: &str = "cassandra> ";

pub(super) const BANNER: &str = "Welcome to cassandra CLI.\n\n\
    Type 'help' or '?' for help. Type 'quit' or 'exit' to quit.\n";

/// Asks for statements until the end.
pub(super) fn run(session: &mut Session) -> Result<ExitCode, Failure> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .auto_add_history(true)
        .max_history_size(HISTORY)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(Failure::new)?
        .build();
    let mut editor: Editor<Assistant, FileHistory> =
        Editor::with_config(config).map_err(Failure::new)?;
    editor.set_helper(Some(Assistant::default()));
    let history =
        std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cassandra.history"));
    if let Some(history) = &history {
        // There is none at first.
        let _ = editor.load_history(history);
    }
    loop {
        if session.names().is_empty() {
            // A statement will say what is wrong.
            let _ = session.load_families();
        }
        if let Some(assistant) = editor.helper_mut() {
            assistant.families = session.names();
        }
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            // Ctrl-C leaves the line.
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(Failure::new(error)),
        };
        if let Some(history) = &history {
            // Statements work without it.
            let _ = editor.append_history(history);
        }
        // Several of them if they were pasted.
        for part in whole_lines(&line) {
            for span in statements(part) {
                session.printer.screen.begin(pager());
                if session.run(&part[span], "") == Outcome::Exit {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    }
}

/// Lines of the terminal, and the command that shows more than these.
fn pager() -> Option<(usize, String)> {
    let command = std::env::var("PAGER").ok().filter(|it| !it.trim().is_empty())?;
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_row > 0).then_some((usize::from(size.ws_row), command))
}
