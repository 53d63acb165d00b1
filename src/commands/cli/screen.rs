//! Output of statements: the standard output, or a pager when it is longer than the terminal.

use crate::commands::output;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The consumer wants no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

/// Where text goes.
#[derive(Debug)]
pub(super) struct Screen {
    /// Lines of the terminal and the command of the pager, if there are both.
    paged: Option<(usize, String)>,
    /// Text of this statement that may become too long.
    held: String,
    pager: Option<Child>,
    /// Set by Ctrl-C.
    interrupted: Arc<AtomicBool>,
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
        if let Some(pager) = &mut self.pager {
            return write(pager, text);
        }
        let Some((lines, command)) = &self.paged else {
            output::text(text);
            return if output::is_complete() { Ok(()) } else { Err(Stopped) };
        };
        self.held.push_str(text);
        if self.held.lines().count() < *lines {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        let shell = Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn();
        self.paged = None;
        match shell {
            Ok(pager) => write(self.pager.insert(pager), &held),
            Err(_) => self.print(&held),
        }
    }

    /// Ends the output of a statement; waits until the pager is left.
    pub(super) fn end(&mut self) {
        output::text(&std::mem::take(&mut self.held));
        if let Some(mut pager) = self.pager.take() {
            drop(pager.stdin.take());
            // Its exit code is for people.
            let _ = pager.wait();
        }
    }
}

fn write(pager: &mut Child, text: &str) -> Result<(), Stopped> {
    let written = pager.stdin.as_mut().map(|input| input.write_all(text.as_bytes()));
    written.and_then(Result::ok).ok_or(Stopped)
}
