//! `alexandra check-config`: what a node would run with.

use super::offline::FAILED;
use super::output;
use crate::config::{ConfigError, Settings, describe};
use crate::model::comparator::ComparatorRegistry;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A storage-conf.xml, or the directory that holds it; without it the built-in one
    file: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let comparators = ComparatorRegistry::default();
    let loaded = match &arguments.file {
        Some(file) => Settings::load(file, &comparators),
        None => Settings::embedded(&comparators),
    };
    match loaded {
        Ok(loaded) => {
            for note in &loaded.notes {
                complain!("{note}");
            }
            output::text(&describe(&loaded));
            output::finish_telling(ExitCode::SUCCESS, FAILED)
        }
        Err(error) => {
            complain!("{}", error.log_line());
            refuse(&error)
        }
    }
}

/// Prints the line that the original prints for a configuration that it refuses, and says how to
/// exit. What is wrong with it goes to the log.
pub(super) fn refuse(error: &ConfigError) -> ExitCode {
    complain!("{}", error.class().stderr_line());
    ExitCode::from(error.exit_code())
}
