//! `alexandra check-config`: what a node would run with.

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
                eprintln!("{note}");
            }
            print!("{}", describe(&loaded));
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error),
    }
}

/// Prints why a configuration is refused, as the original does, and how to exit.
pub(super) fn refuse(error: &ConfigError) -> ExitCode {
    eprintln!("{}", error.log_line());
    eprintln!("{}", error.class().stderr_line());
    ExitCode::from(error.exit_code())
}
