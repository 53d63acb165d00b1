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

/// Ends of pages, by command: exit codes and environment variables.
const ENDS: [(&str, &str); 9] = [
    (
        "serve",
        "Exit codes: 0 after an orderly stop; 1, 2, 3 and 100 for starts that fail, as in \
         docs/configuration.md. RUST_LOG sets the levels of the log.",
    ),
    ("check-config", "Exit codes: those that a start of the server would have."),
    (
        "nodetool",
        "Exit codes: 0; 1 if the arguments make no sense, the server could not do it, or health, \
         status or describecluster found something wrong; 3 without a server. \
         ALEXANDRA_ADMIN_TOKEN has the AdminToken, unless --token-file does.",
    ),
    ("clustertool", "Exit codes: as of nodetool. ALEXANDRA_ADMIN_TOKEN has the AdminToken."),
    (
        "support-bundle",
        "Exit codes: 0; 1 without an archive. ALEXANDRA_ADMIN_TOKEN: as of nodetool.",
    ),
    (
        "cli",
        "Exit codes: 0; 1 if a statement failed; 2 if the arguments make no sense or there is no \
         server. ALEXANDRA_PASSWORD has the password of --username.",
    ),
    (
        "stress",
        "Exit codes: 0; 1 if anything failed, unless --ignore-errors is given. \
         ALEXANDRA_PASSWORD has the password of --username.",
    ),
    ("snapshot", "Exit codes: 0; 1 for a failure."),
    ("restore", "Exit codes: 0; 1 for a failure."),
];

/// Writes the pages.
pub(super) fn write_manual(
    arguments: &ManArguments,
    program: Command,
) -> Result<ExitCode, Failure> {
    let directory = &arguments.directory;
    let program = program.mut_subcommands(|command| {
        match ENDS.iter().find(|(name, _)| *name == command.get_name()) {
            Some((_, end)) => command.after_help(*end),
            None => command,
        }
    });
    clap_mangen::generate_to(program, directory).map_err(|error| {
        Failure::new(format_args!("cannot write to {}: {error}", directory.display()))
    })?;
    Ok(output::finish(ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Arguments;
    use clap::CommandFactory;

    #[test]
    fn pages_end_with_exit_codes_and_variables() {
        let directory = tempfile::tempdir().unwrap();
        let arguments = ManArguments { directory: directory.path().to_owned() };
        write_manual(&arguments, Arguments::command()).unwrap();
        for (name, end) in ENDS {
            let page = directory.path().join(format!("alexandra-{name}.1"));
            let page = std::fs::read_to_string(page).unwrap();
            assert!(page.contains(&end[..12]), "{name}: {page}");
        }
    }
}
