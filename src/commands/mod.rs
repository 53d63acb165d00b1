//! The subcommands of the binary, a file each: parse flags, call the library, print.

#[macro_use]
mod output;
mod packaging;
mod passwd;

mod check_config;
mod cli;
mod clustertool;
mod dev_cluster;
mod interrupt;
mod log_file;
mod nodetool;
mod offline;
mod progress;
mod restore;
mod serve;
mod snapshot;
mod sstable;
mod start_script;
mod stress;
mod support;
mod takeover;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Alexandra takes the place of an Apache Cassandra 0.4-0.6 server.
#[derive(Debug, Parser)]
#[command(name = "alexandra", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a node
    Serve(serve::Arguments),
    /// Runs several nodes on this machine, for development
    DevCluster(dev_cluster::Arguments),
    /// Reads and writes rows of a running server, by statements
    Cli(Box<cli::Arguments>),
    /// Puts load on running servers and reports throughput, latencies and failures
    Stress(Box<stress::Arguments>),
    /// Asks a running node, or has it do something
    Nodetool(nodetool::Arguments),
    /// Acts on all nodes of a ring
    Clustertool(clustertool::Arguments),
    /// Reads a storage-conf.xml and prints what a node would run with
    CheckConfig(check_config::Arguments),
    /// Takes, lists and clears snapshots
    Snapshot(snapshot::Arguments),
    /// Brings the data of a stopped server back to a snapshot, and from there to a point in time
    Restore(restore::Arguments),
    /// Looks at SSTables, repairs, exports and imports them while no server runs on them
    Sstable(sstable::Arguments),
    /// Tells what a start on the directories of Apache Cassandra would do
    Takeover(takeover::Arguments),
    /// Packs what others need to know to help with a node, without secrets
    SupportBundle(support::Arguments),
    /// Sets the password of a user
    Passwd(passwd::Arguments),
    /// Prints the script that completes commands and options in a shell
    Completions(packaging::CompletionArguments),
    /// Writes a manual page for each command
    Man(packaging::ManArguments),
    /// Prints the version
    Version,
}

/// Has writes at the limit of `ulimit -f` fail, as on a full disk, instead of ending the process.
/// The handler stays when the runtime is gone.
fn survive_file_limits() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    signal(kind).map(drop)
}

/// Commands of old scripts whose options differ from ours.
fn scripts() -> impl Iterator<Item = clap::Command> {
    sstable::old_tools().into_iter().chain([stress::command_of_old()])
}

/// Runs the command that these arguments, the name of the program first, stand for.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    // Without it a command works all the same, on files below the limit.
    let _ = survive_file_limits();
    // Under the name of a script of the original it is that script.
    let name = arguments.first().map(Path::new).and_then(Path::file_stem);
    if let Some(tool) = name.and_then(sstable::OldTool::of_name) {
        return tool.run(arguments);
    }
    let mut script = None;
    match name.and_then(OsStr::to_str) {
        Some("cassandra") => {
            script = Some(arguments.clone());
            arguments.insert(1, "serve".into());
        }
        Some("stress") => return stress::run_of_old(arguments),
        Some("cassandra-cli") => arguments = cli::of_old(arguments),
        Some("clustertool") => arguments = nodetool::of_old("clustertool", arguments),
        Some("nodetool" | "nodeprobe") => arguments = nodetool::of_old("nodetool", arguments),
        _ => {}
    }
    let usage = match arguments.get(1).and_then(|argument| argument.to_str()) {
        Some("sstable") => sstable::FAILED,
        Some("cli") => cli::NOT_CONNECTED,
        _ => output::FAILED,
    };
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            let is_help = error.kind() == ErrorKind::DisplayHelp;
            if let Some(script) = script.filter(|it| is_help && !it.contains(&"--help".into())) {
                start_script::print_usage(&script[0]);
                return output::finish_telling(ExitCode::SUCCESS, usage);
            }
            // Help and version are no errors; a failure of printing has no place to be reported.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(usage) } else { ExitCode::SUCCESS };
        }
    };
    let done = match parsed.command {
        Command::Serve(arguments) => match script {
            Some(script) => start_script::run(arguments, &script),
            None => serve::run_here(&arguments),
        },
        Command::DevCluster(arguments) => dev_cluster::run(&arguments),
        Command::Cli(arguments) => cli::run(*arguments),
        Command::Stress(arguments) => stress::run(*arguments),
        Command::Nodetool(arguments) => nodetool::run(&arguments),
        Command::Clustertool(arguments) => clustertool::run(&arguments),
        Command::CheckConfig(arguments) => Ok(check_config::run(&arguments)),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Sstable(arguments) => Ok(sstable::run(arguments)),
        Command::Takeover(arguments) => Ok(takeover::run(&arguments)),
        Command::SupportBundle(arguments) => support::run(&arguments),
        Command::Passwd(arguments) => passwd::run(&arguments),
        Command::Completions(arguments) => {
            Ok(packaging::complete(&arguments, &Arguments::command()))
        }
        Command::Man(arguments) => {
            packaging::write_manual(&arguments, Arguments::command(), scripts())
        }
        Command::Version => {
            say!("alexandra {}", env!("CARGO_PKG_VERSION"));
            Ok(output::finish_telling(ExitCode::SUCCESS, output::FAILED))
        }
    };
    done.unwrap_or_else(|failure| failure.tell())
}
