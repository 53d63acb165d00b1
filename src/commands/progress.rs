//! A bar on standard error that shows how far a command is, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;

/// Progress of a command; gone when this is.
#[derive(Debug)]
pub(in crate::commands) struct Progress(ProgressBar);

impl Progress {
    /// Shows progress in bytes, after a verb and the name of a file.
    pub(in crate::commands) fn new(verb: &str, file: &Path, bytes: u64) -> Self {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let progress = Self::of_work(bytes);
        progress.tell(&format!("{verb} {name}"));
        progress
    }

    /// Shows progress in bytes, after the text of [`Progress::tell`].
    pub(in crate::commands) fn of_work(bytes: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        let template = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
        Self(bar)
    }

    /// Whether it is shown on a terminal.
    pub(in crate::commands) fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// The present step.
    pub(in crate::commands) fn tell(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Sets the bytes that are done, and all of them.
    pub(in crate::commands) fn set_of(&self, bytes: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(bytes);
    }

    /// Sets the bytes that are done.
    pub(in crate::commands) fn set(&self, bytes: u64) {
        self.0.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
