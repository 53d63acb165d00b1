//! The program under the name `cassandra`: the start script of the original. Without `-f` the
//! server leaves its terminal when it is ready, and logs to a rotated file.

mod detach;
mod environment;
mod log4j;

use super::output::Failure;
use super::serve;
use crate::config::Properties;
use std::ffi::OsString;
use std::process::ExitCode;

/// Prints the usage line of the original.
pub(super) fn print_usage(name: &OsString) {
    say!("Usage: {} [-f] [-h] [-p pidfile] [-b]", name.display());
}

/// Runs the server, here or as a process of its own. The command line begins with the name of the
/// script.
pub(super) fn run(
    mut arguments: serve::Arguments,
    command_line: &[OsString],
) -> Result<ExitCode, Failure> {
    let properties = Properties::parse(&arguments.properties);
    let stays = arguments.foreground || properties.get("cassandra-foreground").is_some();
    if !stays && !arguments.detached {
        return detach::start(command_line);
    }
    let configuration = environment::complete(&mut arguments, &command_line[0])?;
    let mut log = log4j::plan(&configuration, !arguments.detached)?;
    log.notes.push(format!("configuration: {}", configuration.display()));
    if arguments.detached {
        serve::run(&arguments, log, detach::leave_terminal)
    } else {
        serve::run(&arguments, log, || {})
    }
}
