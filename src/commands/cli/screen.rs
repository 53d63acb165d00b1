//! Output of statements: the standard output, or a pager when it is longer than the terminal.

use crate::commands::output;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The consumer wants no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

/// Bytes of text that no pipe holds: a pager that took them has started.
const PIPE: usize = 1 << 20;

/// Exit codes of a shell whose command cannot be run, or is not there.
const NOT_RUN: [i32; 2] = [126, 127];

/// Where text goes.
#[derive(Debug)]
pub(super) struct Screen {
    /// Lines of the terminal and the command of the pager, if there are both.
    paged: Option<(usize, String)>,
    /// Text of this statement that may become too long.
    held: String,
    pager: Option<Pager>,
    /// Set by Ctrl-C.
    interrupted: Arc<AtomicBool>,
}

/// A pager in its shell.
#[derive(Debug)]
struct Pager {
    shell: Child,
    command: String,
    /// All text that it was given, until it has surely started.
    given: Option<String>,
}

impl Screen {
    pub(super) fn new(interrupted: Arc<AtomicBool>) -> Self {
        Self { paged: None, held: String::new(), pager: None, interrupted }
    }

    /// Begins the output of a statement.
    pub(super) fn begin(&mut self, paged: Option<(usize, String)>) {
        self.paged = paged;
        self.interrupted.store(false, Ordering::Relaxed);
    }

    /// Prints whole lines.
    pub(super) fn print(&mut self, text: &str) -> Result<(), Stopped> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Stopped);
        }
        if self.pager.is_some() {
            return self.give(text);
        }
        let Some((lines, _)) = &self.paged else {
            output::text(text);
            return if output::is_complete() { Ok(()) } else { Err(Stopped) };
        };
        self.held.push_str(text);
        if self.held.lines().count() < *lines {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        let Some((_, command)) = self.paged.take() else { return self.print(&held) };
        match Command::new("sh").args(["-c", &command]).stdin(Stdio::piped()).spawn() {
            Ok(shell) => {
                self.pager = Some(Pager { shell, command, given: Some(String::new()) });
                self.give(&held)
            }
            Err(_) => self.print(&held),
        }
    }

    /// Gives text to the pager.
    fn give(&mut self, text: &str) -> Result<(), Stopped> {
        let Some(pager) = &mut self.pager else { return Err(Stopped) };
        if let Some(given) = &mut pager.given {
            given.push_str(text);
        }
        match pager.shell.stdin.as_mut().map(|input| input.write_all(text.as_bytes())) {
            Some(Ok(())) => {
                pager.given.take_if(|given| given.len() > PIPE);
                Ok(())
            }
            _ => self.leave_pager(),
        }
    }

    /// Waits until the pager is left, and prints the text of one that could not be started.
    fn leave_pager(&mut self) -> Result<(), Stopped> {
        let Some(mut pager) = self.pager.take() else { return Err(Stopped) };
        drop(pager.shell.stdin.take());
        let code = pager.shell.wait().ok().and_then(|status| status.code());
        let Some(given) = pager.given.filter(|_| code.is_some_and(|it| NOT_RUN.contains(&it)))
        else {
            // Other exit codes are for people.
            return Err(Stopped);
        };
        complain!("PAGER '{}' cannot be started: the output goes without", pager.command);
        self.print(&given)
    }

    /// Ends the output of a statement; waits until the pager is left.
    pub(super) fn end(&mut self) {
        output::text(&std::mem::take(&mut self.held));
        // Nothing follows that would have to be stopped.
        let _ = self.leave_pager();
    }
}
