//! Failures of commands.

use std::fmt::Display;
use std::process::ExitCode;

/// Exit code for arguments that make no sense, and for what could not be done.
pub(super) const FAILED: u8 = 1;

/// Why a command came to nothing: what it tells, and how it exits.
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

    /// Says why, and returns how to exit.
    pub(super) fn tell(&self) -> ExitCode {
        complain!("{}", self.text);
        ExitCode::from(self.exit_code)
    }
}
