//! `alexandra nodetool`: asks the admin side of a running node, or has it do something. Command
//! lines and outputs are those of 0.6 where it had them.

mod client;
mod column_families;
mod commands;
mod print;
mod progress;
mod ring;
#[cfg(test)]
mod tests;

use super::output::{self, FAILED, Failure};
use clap::ArgAction;
pub(super) use client::{Client, ServerArguments, members};
use commands::{Change, Command};
use print::Printed;
pub(super) use print::render_snapshots;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,

    /// How long the server may take to answer, in seconds, except to what takes its time: flush,
    /// compact and snapshots
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,

    /// Prints JSON
    #[arg(long, global = true)]
    json: bool,

    /// Prints help
    #[arg(long, global = true, action = ArgAction::Help)]
    help: Option<bool>,

    #[command(subcommand)]
    command: Command,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (answer, Printed { text, json, is_well }) = execute(arguments)?;
    let exit_code = if is_well { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
    let json = json.unwrap_or(answer);
    output::text(&if arguments.json { format!("{json:#}\n") } else { text });
    Ok(match arguments.command {
        Command::Look(_) => output::finish_telling(exit_code, FAILED),
        Command::Change(_) | Command::Operation(_) => output::finish(exit_code),
    })
}

/// Sends the request of a command; returns the answer, and what is printed of it.
fn execute(arguments: &Arguments) -> Result<(Value, Printed), Failure> {
    let timeout = Duration::from_secs(arguments.timeout);
    let client = arguments.server.client(timeout)?;
    let call = arguments.command.call()?;
    let path = format!("/api/v1/{}", call.path);
    let answer = match &arguments.command {
        Command::Change(Change::Compact(work)) => progress::compact(&client, &path, &call, work)?,
        _ => client.call(&call.method, &path, &call.parameters)?,
    };
    let answer = match &arguments.command {
        Command::Operation(it) if !it.waiting().no_wait => progress::follow(&client, answer)?,
        _ => answer,
    };
    let printed = (call.print)(&answer).map_err(|error| client.senseless(error))?;
    Ok((answer, printed))
}

/// The arguments as this program takes them, of a call under the name of an old tool: `nodetool`,
/// or `nodeprobe` as it was called before 0.6, or `clustertool`.
pub(super) fn of_old(tool: &str, mut arguments: Vec<OsString>) -> Vec<OsString> {
    // The program by its own name, or usage would name `nodetool nodetool`.
    arguments.splice(..1, ["alexandra".into(), tool.into()]);
    arguments.into_iter().map(|argument| long_option(&argument).unwrap_or(argument)).collect()
}

/// 0.5 wrote long options with one dash.
fn long_option(argument: &OsStr) -> Option<OsString> {
    let option = argument.to_str()?;
    match option.split_once('=').map_or(option, |(name, _)| name) {
        "-host" | "-port" => Some(format!("-{option}").into()),
        // Else it would be a port.
        "-pr" => Some("--primary-range".into()),
        _ => None,
    }
}
