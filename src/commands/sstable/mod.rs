//! `alexandra sstable`: looks at SSTables, checks and repairs them, exports and imports their rows,
//! while no server runs on them.
//!
//! Exit codes: 0 everything is sound and done; 1 something is damaged or lost; 2 the command could
//! not do its work, and nothing is changed.

mod dump;
mod export;
mod import;
mod old_tools;
mod scrub;
mod target;
mod to_original;
mod verify;

pub(super) use old_tools::{OldTool, commands as old_tools};
pub(super) use target::{ToolError, all_families, open_original};
pub(super) use verify::verify_original_file;

use super::output;
use super::serve::start_logging;
use crate::storage::json::ExportError;
use clap::Subcommand;
use std::io;
use std::process::ExitCode;

/// Exit code if something is damaged or lost.
const DAMAGED: u8 = 1;

/// Exit code if a command could not do its work.
pub(super) const FAILED: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 sound and done; 1 something is damaged or lost; 2 nothing was done.

The commands work on the directories of a stopped server, and refuse those of a running one. Files \
of a snapshot, and any outside of a data directory, can be read at any time.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints what is in SSTables, for people
    #[command(after_help = EXIT_CODES)]
    Dump(dump::Arguments),
    /// Reads SSTables whole and checks everything that can be checked
    #[command(after_help = EXIT_CODES)]
    Verify(verify::Arguments),
    /// Saves what can be read of damaged SSTables into new ones, and keeps the damaged ones
    #[command(after_help = EXIT_CODES)]
    Scrub(scrub::Arguments),
    /// Writes rows as JSON, in the shape of sstable2json; or data directories for 0.4 to 0.6
    #[command(after_help = EXIT_CODES)]
    Export(export::Arguments),
    /// Makes an SSTable from JSON that export, or sstable2json of old, has written
    #[command(after_help = EXIT_CODES)]
    Import(import::Arguments),
}

pub(super) fn run(arguments: Arguments) -> ExitCode {
    start_logging("warn");
    let is_telling = !matches!(arguments.command, Command::Scrub(_) | Command::Import(_));
    let done = match arguments.command {
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Scrub(arguments) => scrub::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
    };
    let exit_code = exit(done);
    if is_telling { output::finish_telling(exit_code, FAILED) } else { output::finish(exit_code) }
}

/// Exit code of a command that did its work, true if all was sound, or of one that failed.
pub(super) fn exit(done: Result<bool, ToolError>) -> ExitCode {
    let error = match done {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => return ExitCode::from(DAMAGED),
        Err(error) => error,
    };
    let of_output = match error.downcast_ref() {
        Some(ExportError::Write(error)) => Some(error),
        _ => error.downcast_ref::<io::Error>(),
    };
    if of_output.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    let is_plain = error.is::<io::Error>();
    complain!("{}{error}", if is_plain { "cannot write the output: " } else { "" });
    ExitCode::from(FAILED)
}
