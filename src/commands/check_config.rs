//! `alexandra check-config`: the settings that a node would run with, or all that keeps it from
//! running.

use super::output;
use super::output::FAILED;
use crate::base::fs::OsFileSystem;
use crate::base::tls::Tls;
use crate::config::{ConfigErrors, Loader, Placements, Properties, describe};
use crate::model::comparator::ComparatorRegistry;
use crate::node::{self, NodeError};
use crate::schema;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A storage-conf.xml, or the directory that holds it; without it the built-in one
    file: Option<PathBuf>,

    /// A system property as of old, such as -DrackFile=FILE
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    properties: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let comparators = ComparatorRegistry::default();
    let properties = Properties::parse(&arguments.properties);
    let file = arguments.file.clone().or_else(|| properties.config_directory());
    for unknown in properties.unknown() {
        complain!("warning: the system property {unknown} has no meaning here");
    }
    let jmx_port = properties.jmx_port().unwrap_or_default();
    let check = Loader { jmx_port, ..Loader::for_check(&comparators) };
    let loaded = match check.load(file.as_deref()) {
        Ok(loaded) => loaded,
        Err(errors) => {
            for note in &errors.notes {
                complain!("{note}");
            }
            complain!("{errors}");
            return refuse(&errors);
        }
    };
    output::text(&describe(&loaded));
    for warning in node::file_warnings(&loaded.settings, &properties) {
        complain!("warning: {warning}");
    }
    for fault in node::login_faults(&loaded.settings, &properties) {
        complain!("warning: Authenticator: every login will be refused: {fault}");
    }
    let mut faults = node::property_faults(&loaded.settings, &properties);
    faults.extend(Placements::read(&loaded.settings, &properties).err().map(NodeError::from));
    match Tls::read(&loaded.settings.tls) {
        Ok(tls) => tls.warning().iter().for_each(|warning| complain!("warning: {warning}")),
        Err(why) => faults.push(NodeError::Tls(why)),
    }
    let mut settings = loaded.settings.clone();
    let read = schema::read(&mut settings, &OsFileSystem);
    faults.extend(read.err().map(NodeError::from));
    for fault in &faults {
        complain!("{fault}");
    }
    if let Some(first) = faults.first() {
        return ExitCode::from(first.exit_code());
    }
    output::finish_telling(ExitCode::SUCCESS, FAILED)
}

/// Prints the line that the original prints for a configuration that it refuses, and returns how
/// to exit. The caller prints the errors.
pub(super) fn refuse(errors: &ConfigErrors) -> ExitCode {
    complain!("{}", errors.class().stderr_line());
    ExitCode::from(errors.exit_code())
}
