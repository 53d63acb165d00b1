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
    /// The name under which the program is called
    #[arg(default_value = PROGRAM, value_parser = [PROGRAM, "nodetool", "nodeprobe", "clustertool",
        "cassandra-cli"])]
    name: String,
}

const PROGRAM: &str = "alexandra";

#[derive(Debug, clap::Args)]
pub(super) struct ManArguments {
    /// An existing directory, for a page of each command
    directory: PathBuf,
}

/// Prints the script that completes the commands and options of the program in a shell.
pub(super) fn complete(arguments: &CompletionArguments, program: &Command) -> ExitCode {
    output::text(&completions(arguments, program));
    output::finish_telling(ExitCode::SUCCESS, output::FAILED)
}

fn completions(CompletionArguments { shell, name }: &CompletionArguments, all: &Command) -> String {
    // Under an old name the program is one of its commands.
    let command = match name.as_str() {
        "nodeprobe" => "nodetool",
        "cassandra-cli" => "cli",
        name => name,
    };
    let mut program = all.find_subcommand(command).unwrap_or(all).clone().name(name.clone());
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut program, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
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

/// Writes the pages of the program, and of old scripts with options of their own.
pub(super) fn write_manual(
    arguments: &ManArguments,
    program: Command,
    scripts: impl IntoIterator<Item = Command>,
) -> Result<ExitCode, Failure> {
    let directory = &arguments.directory;
    let program = program.mut_subcommands(|command| {
        match ENDS.iter().find(|(name, _)| *name == command.get_name()) {
            Some((_, end)) => command.after_help(*end),
            None => command,
        }
    });
    let failed =
        |error| Failure::new(format_args!("cannot write to {}: {error}", directory.display()));
    clap_mangen::generate_to(program, directory).map_err(failed)?;
    for script in scripts {
        clap_mangen::generate_to(script, directory).map_err(failed)?;
    }
    Ok(output::finish(ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Arguments, scripts};
    use clap::CommandFactory;

    #[test]
    fn pages_end_with_exit_codes_and_variables() {
        let directory = tempfile::tempdir().unwrap();
        let arguments = ManArguments { directory: directory.path().to_owned() };
        write_manual(&arguments, Arguments::command(), scripts()).unwrap();
        let page = |name: &str| {
            std::fs::read_to_string(directory.path().join(format!("{name}.1"))).unwrap()
        };
        for (name, end) in ENDS {
            let page = page(&format!("alexandra-{name}"));
            assert!(page.contains(&end[..12]), "{name}: {page}");
        }
        let options = [("stress.py", "keep\\-going"), ("sstable2json", "Enumerate keys only")];
        for (name, option) in options {
            assert!(page(name).contains(option), "{name}: {}", page(name));
        }
        assert!(page("json2sstable").contains("Column family"));
        assert!(!page("sstablekeys").contains("Output file"), "it takes nothing but a file");
    }

    #[test]
    fn the_documents_name_the_options_of_the_shell_and_the_commands_of_clustertool() {
        let all = Arguments::command();
        let arguments = all.find_subcommand("cli").unwrap().get_arguments();
        let shown = arguments.filter(|it| !it.is_hide_set() && it.get_id() != "help");
        let document = std::fs::read_to_string("docs/cli.md").unwrap();
        for option in shown {
            let short = option.get_short().map(|short| format!(" -{short} "));
            let short = short.is_some_and(|short| document.replace('[', " ").contains(&short));
            let long = option.get_long().map(|long| format!("--{long}")).unwrap();
            assert!(short || document.contains(&long), "{long} is not in docs/cli.md");
        }
        let document = std::fs::read_to_string("docs/nodetool.md").unwrap();
        for command in all.find_subcommand("clustertool").unwrap().get_subcommands() {
            let row = format!("| `{}", command.get_name());
            assert!(document.contains(&row), "{row} is not in docs/nodetool.md");
        }
    }

    #[test]
    fn each_name_of_the_program_completes_its_own_commands() {
        let all = Arguments::command();
        let has = |name: &str, word: &str| {
            let arguments = CompletionArguments { shell: Shell::Bash, name: name.to_owned() };
            let script = completions(&arguments, &all);
            script.split_whitespace().any(|it| it.trim_matches('"') == word)
        };
        assert!(has("alexandra", "check-config"));
        for name in ["nodetool", "nodeprobe"] {
            assert!(has(name, "cfstats"));
            assert!(!has(name, "check-config"));
        }
        assert!(has("clustertool", "global_snapshot"));
        assert!(has("cassandra-cli", "--keyspace"));
    }
}
