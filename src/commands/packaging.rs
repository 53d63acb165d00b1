//! `alexandra completions` and `alexandra man`: files that a package installs beside the program.

use super::output::{self, Failure};
use clap::Command;
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct CompletionArguments {
    /// The shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(super) struct ManArguments {
    /// An existing directory, for a page of each command
    directory: PathBuf,
}

/// Prints the script that completes the commands and options of the program in a shell.
pub(super) fn complete(arguments: &CompletionArguments, mut program: Command) -> ExitCode {
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    output::text(&String::from_utf8_lossy(&script));
    output::finish_telling(ExitCode::SUCCESS, output::FAILED)
}

/// Writes the pages.
pub(super) fn write_manual(
    arguments: &ManArguments,
    program: Command,
) -> Result<ExitCode, Failure> {
    let directory = &arguments.directory;
    clap_mangen::generate_to(program, directory).map_err(|error| {
        Failure::new(format_args!("cannot write to {}: {error}", directory.display()))
    })?;
    Ok(output::finish(ExitCode::SUCCESS))
}
