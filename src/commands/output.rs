//! Output of commands. The macros of the standard library panic when the output is full or closed,
//! which must end no server, and no command in the middle of its work: here the first failure is
//! kept, and reported at the end.

use crate::config::ConfigErrors;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Why something of the output is missing.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to the standard output.
macro_rules! say {
    ($($argument:tt)*) => { $crate::commands::output::line(format_args!($($argument)*)) };
}

/// Prints a line to the standard error output. A failure of that has no place to be reported.
macro_rules! complain {
    ($($argument:tt)*) => { $crate::commands::output::error_line(format_args!($($argument)*)) };
}

/// See `say!`.
pub(super) fn line(arguments: fmt::Arguments<'_>) {
    note(writeln!(io::stdout(), "{arguments}"));
}

/// See `complain!`.
pub(super) fn error_line(arguments: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{arguments}");
}

/// Prints whole lines.
pub(super) fn text(text: &str) {
    note(io::stdout().write_all(text.as_bytes()));
}

/// Whether nothing of the output is missing yet.
pub(super) fn is_complete() -> bool {
    FAILURE.get().is_none()
}

fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = FAILURE.set(error);
    }
}

/// Exit code of a command that has done its work, whether or not it could tell of it.
pub(super) fn finish(exit_code: ExitCode) -> ExitCode {
    complete();
    exit_code
}

/// Exit code of a command that is there for its output alone: `failed` if that is not complete.
pub(super) fn finish_telling(exit_code: ExitCode, failed: u8) -> ExitCode {
    if complete() { exit_code } else { ExitCode::from(failed) }
}

/// Whether everything was printed that anybody wanted to read; if not, says why.
fn complete() -> bool {
    note(io::stdout().flush());
    match FAILURE.get() {
        // A reader that closed our output, as `head` does, does not want the rest.
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain!("not everything could be printed: {error}");
            false
        }
        _ => true,
    }
}

/// Exit code for arguments that make no sense, and for what could not be done.
pub(super) const FAILED: u8 = 1;

/// Failure of a command: exit code and text.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) exit_code: u8,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(text: impl Display) -> Self {
        Self::with(FAILED, text)
    }

    pub(super) fn with(exit_code: u8, text: impl Display) -> Self {
        Self { exit_code, text: text.to_string() }
    }

    /// Prints the text and returns the exit code.
    pub(super) fn tell(&self) -> ExitCode {
        complain!("{}", self.text);
        ExitCode::from(self.exit_code)
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::with(errors.exit_code(), errors)
    }
}
