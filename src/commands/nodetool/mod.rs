//! `alexandra nodetool`: asks the admin side of a running node, or has it do something. Command
//! lines and outputs are those of 0.6 where it had them.

mod allow_return;
mod cache_capacity;
mod cfhistograms;
mod cfstats;
mod client;
mod compact;
mod compaction_stats;
mod compaction_thresholds;
mod describe_cluster;
mod drain;
mod flush;
mod gossip_info;
mod hints;
mod info;
mod operations;
mod ring;
mod snapshots;
mod status;
mod streams;
mod tpstats;
mod version;

use super::output;
use clap::{ArgAction, Subcommand};
pub(super) use client::Client;
use client::ClientError;
use serde::Serialize;
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
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints token, load, uptime and memory
    Info,
    /// Prints the nodes of the ring: who is up, with how much data, where
    Ring,
    /// Prints all nodes at a glance; exits with 1 unless all are up and in their places
    Status,
    /// Prints whether all nodes agree on schema and replication; exits with 1 if not
    Describecluster,
    /// Takes the node out of its ring, refuses writes and writes everything to disk; then start it
    /// anew
    Drain,
    /// Takes a removed node back into the ring with the data that it has; for each node to be told
    Allowreturn(allow_return::Arguments),
    /// Leaves the ring: other nodes take over what this one has
    Decommission(operations::Waiting),
    /// Leaves the ring and joins it at another token
    Move(operations::MoveArguments),
    /// Moves to where the busiest node gives half of its load away
    Loadbalance(operations::Waiting),
    /// Removes a dead node from the ring: others take over what it had
    Removetoken(operations::RemoveArguments),
    /// Drops what this node holds no more, after the ring has changed
    Cleanup(operations::CleanupArguments),
    /// Prints what the node is about, and which data move between it and others
    #[command(alias = "netstats")]
    Streams(streams::Arguments),
    /// Makes replicas alike: those of this node's ranges compare what they have
    Repair(operations::RepairArguments),
    /// Prints what the nodes say of themselves
    Gossipinfo,
    /// Prints what is kept for nodes that were down, and what is being done about it
    Hints,
    /// Prints the version of the server
    Version,
    /// Prints statistics of column families
    Cfstats(cfstats::Arguments),
    /// Prints how long reads and writes of a column family took, in about the last minute
    Cfhistograms(cfhistograms::Arguments),
    /// Prints what work is being done, waits and was done
    Tpstats,
    /// Writes memtables to disk
    Flush(flush::Arguments),
    /// Merges all SSTables of each column family into one
    Compact(compact::Arguments),
    /// Prints which compactions are running, and how far they are
    Compactionstats,
    /// Prints how many SSTables a minor compaction takes
    Getcompactionthreshold(compaction_thresholds::GetArguments),
    /// Changes how many SSTables a minor compaction takes, until the server is restarted
    Setcompactionthreshold(compaction_thresholds::SetArguments),
    /// Changes how many entries the caches of a column family may have, until the next start
    Setcachecapacity(cache_capacity::Arguments),
    /// Takes a snapshot
    Snapshot(snapshots::TakeArguments),
    /// Removes snapshots: all, unless options say which
    Clearsnapshot(snapshots::ClearArguments),
    /// Prints which snapshots there are and what space they take
    Listsnapshots(snapshots::ListArguments),
}

impl Command {
    /// Whether it does something besides telling.
    fn changes(&self) -> bool {
        match self {
            Self::Allowreturn(_)
            | Self::Decommission(_)
            | Self::Move(_)
            | Self::Loadbalance(_)
            | Self::Removetoken(_)
            | Self::Cleanup(_)
            | Self::Drain
            | Self::Repair(_)
            | Self::Flush(_)
            | Self::Compact(_)
            | Self::Setcompactionthreshold(_)
            | Self::Setcachecapacity(_)
            | Self::Snapshot(_)
            | Self::Clearsnapshot(_) => true,
            Self::Info
            | Self::Ring
            | Self::Status
            | Self::Describecluster
            | Self::Gossipinfo
            | Self::Streams(_)
            | Self::Hints
            | Self::Version
            | Self::Cfstats(_)
            | Self::Cfhistograms(_)
            | Self::Tpstats
            | Self::Compactionstats
            | Self::Getcompactionthreshold(_)
            | Self::Listsnapshots(_) => false,
        }
    }
}

/// What a command prints.
#[derive(Debug)]
struct Output {
    json: serde_json::Value,
    text: String,
    /// Whether what is told is no failure.
    is_well: bool,
}

impl Output {
    /// What the server answered, and the same as text: whole lines.
    fn new(answer: &impl Serialize, text: String) -> Self {
        let json = serde_json::to_value(answer).expect("it was JSON when the server sent it");
        Self { json, text, is_well: true }
    }

    /// The same, with the exit code of a failure: for scripts that look at nothing else.
    fn failing(self) -> Self {
        Self { is_well: false, ..self }
    }
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
        Ok(Output { json, text, is_well }) => {
            let exit_code = if is_well { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
            let text = if arguments.json { format!("{json:#}\n") } else { text };
            output::text(&text);
            if arguments.command.changes() {
                output::finish(exit_code)
            } else {
                output::finish_telling(exit_code, FAILED)
            }
        }
        Err(error) => {
            complain!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn execute(arguments: &Arguments) -> Result<Output, NodetoolError> {
    let token = token(arguments.token_file.as_deref())?;
    let timeout = Duration::from_secs(arguments.timeout);
    let client = Client::new(&arguments.host, arguments.port, token, timeout)?;
    match &arguments.command {
        Command::Info => info::run(&client),
        Command::Ring => ring::run(&client),
        Command::Status => status::run(&client),
        Command::Describecluster => describe_cluster::run(&client),
        Command::Drain => drain::run(&client),
        Command::Allowreturn(arguments) => allow_return::run(&client, arguments),
        Command::Decommission(waiting) => operations::decommission(&client, waiting),
        Command::Move(arguments) => operations::move_to(&client, arguments),
        Command::Loadbalance(waiting) => operations::loadbalance(&client, waiting),
        Command::Removetoken(arguments) => operations::remove(&client, arguments),
        Command::Cleanup(arguments) => operations::cleanup(&client, arguments),
        Command::Streams(arguments) => streams::run(&client, arguments),
        Command::Repair(arguments) => operations::repair(&client, arguments),
        Command::Gossipinfo => gossip_info::run(&client),
        Command::Hints => hints::run(&client),
        Command::Version => version::run(&client),
        Command::Cfstats(arguments) => cfstats::run(&client, arguments),
        Command::Cfhistograms(arguments) => cfhistograms::run(&client, arguments),
        Command::Tpstats => tpstats::run(&client),
        Command::Flush(arguments) => flush::run(&client, arguments),
        Command::Compact(arguments) => compact::run(&client, arguments),
        Command::Compactionstats => compaction_stats::run(&client),
        Command::Setcachecapacity(arguments) => cache_capacity::run(&client, arguments),
        Command::Getcompactionthreshold(arguments) => {
            compaction_thresholds::get(&client, arguments)
        }
        Command::Setcompactionthreshold(arguments) => {
            compaction_thresholds::set(&client, arguments)
        }
        Command::Snapshot(arguments) => snapshots::take(&client, arguments),
        Command::Clearsnapshot(arguments) => snapshots::clear(&client, arguments),
        Command::Listsnapshots(arguments) => snapshots::list(&client, arguments),
    }
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
