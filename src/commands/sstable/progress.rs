//! A bar on standard error that shows how far a command is, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;

/// How far a command is; gone when this is.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Shows how many of so many bytes are done, behind a verb and the name of a file.
    pub(super) fn new(verb: &str, file: &Path, bytes: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        let template = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        bar.set_message(format!("{verb} {name}"));
        Self(bar)
    }

    /// So many bytes are done.
    pub(super) fn set(&self, bytes: u64) {
        self.0.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
