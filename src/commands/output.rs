//! Output of commands. The macros of the standard library panic when the output is full or closed,
//! which must end no server, and no command in the middle of its work: here the first failure is
//! kept, and told at the end.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Why something of the output is missing.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to the standard output.
macro_rules! say {
    ($($argument:tt)*) => { $crate::commands::output::line(format_args!($($argument)*)) };
}

/// Prints a line to the standard error output. If that fails, nobody is left to tell.
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
        // Whoever closed our output, as `head` does, does not want to know the rest.
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain!("not everything could be printed: {error}");
            false
        }
        _ => true,
    }
}
