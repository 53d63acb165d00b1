//! `alexandra nodetool`: asks the admin side of a running node, or has it do something. Command
//! lines and outputs are those of 0.6 where it had them.

mod arguments;
mod client;
mod column_families;
mod commands;
mod print;
mod progress;
mod ring;

use super::output;
use arguments::Given;
use clap::ArgAction;
pub(super) use client::Client;
use client::{ClientError, query};
use commands::Request;
use print::Printed;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Exit code for arguments that make no sense, and for what the server could not do.
const FAILED: u8 = 1;

/// Exit code when there is no server, as of old.
const NOT_CONNECTED: u8 = 3;

/// Where the token may stand, besides a file.
const TOKEN_VARIABLE: &str = "ALEXANDRA_ADMIN_TOKEN";

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Arguments {
    /// The server: AdminAddress in its storage-conf.xml
    #[arg(short = 'h', long, global = true, default_value = "127.0.0.1", value_name = "HOST")]
    host: String,

    /// Its AdminPort
    #[arg(short = 'p', long, global = true, default_value_t = 8080, value_name = "PORT")]
    port: u16,

    /// A file that holds the AdminToken, for changes
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,

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
    command: Given,
}

/// Why a command came to nothing.
#[derive(Debug, thiserror::Error)]
enum NodetoolError {
    /// The server does not answer, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The token cannot be read.
    #[error("cannot read the token from {file}: {source}", file = file.display())]
    TokenFile {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It was done in vain.
    #[error("{0}")]
    Failed(String),
    /// The server does something else now.
    #[error("{0} is not under way any more: the server was started anew, its log says more")]
    Lost(String),
    /// The arguments make no sense, as the original says it.
    #[error("{0}")]
    Usage(&'static str),
}

impl NodetoolError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Client(error) if error.is_about_the_connection() => NOT_CONNECTED,
            Self::Client(_)
            | Self::TokenFile { .. }
            | Self::Failed(_)
            | Self::Lost(_)
            | Self::Usage(_) => FAILED,
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match execute(arguments) {
        Ok((answer, Printed { text, json, is_well })) => {
            let exit_code = if is_well { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
            let json = json.unwrap_or(answer);
            output::text(&if arguments.json { format!("{json:#}\n") } else { text });
            if arguments.command.row.request == Request::Get {
                output::finish_telling(exit_code, FAILED)
            } else {
                output::finish(exit_code)
            }
        }
        Err(error) => {
            complain!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Sends the request of a command; returns the answer, and what is printed of it.
fn execute(arguments: &Arguments) -> Result<(Value, Printed), NodetoolError> {
    let token = token(arguments.token_file.as_deref())?;
    let timeout = Duration::from_secs(arguments.timeout);
    let client = Client::new(&arguments.host, arguments.port, token, timeout)?;
    let given = &arguments.command;
    let row = given.row;
    let parameters = (row.parameters)(given)?;
    let path = format!("/api/v1/{}", row.path);
    let answer = match row.request {
        Request::Get => client.get(&query(&path, &parameters))?,
        Request::Put => client.set(&path, &parameters)?,
        Request::Post => client.work(&path, &parameters)?,
        Request::Delete => client.delete(&query(&path, &parameters))?,
        Request::Compaction => progress::compact(&client, &path, given, &parameters)?,
        Request::Operation => progress::follow(&client, &path, given, &parameters)?,
    };
    let printed = (row.print)(&answer, given).map_err(|error| client.senseless(error))?;
    Ok((answer, printed))
}

fn token(file: Option<&Path>) -> Result<Option<String>, NodetoolError> {
    let Some(file) = file else { return Ok(std::env::var(TOKEN_VARIABLE).ok()) };
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(source) => Err(NodetoolError::TokenFile { file: file.to_owned(), source }),
    }
}

/// The arguments as this program takes them, of a call under the name `nodetool`, or `nodeprobe` as
/// it was called before 0.6.
pub(super) fn of_old(mut arguments: Vec<OsString>) -> Vec<OsString> {
    // The program by its own name: usage is not told of `nodetool nodetool`.
    arguments.splice(..1, ["alexandra".into(), "nodetool".into()]);
    arguments.into_iter().map(|argument| long_option(&argument).unwrap_or(argument)).collect()
}

/// 0.5 wrote long options with one dash.
fn long_option(argument: &OsStr) -> Option<OsString> {
    match argument.to_str()? {
        "-host" => Some("--host".into()),
        "-port" => Some("--port".into()),
        // Else it would be a port.
        "-pr" => Some("--primary-range".into()),
        _ => None,
    }
}
