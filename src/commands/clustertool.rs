//! `alexandra clustertool`: acts on all nodes of a ring, one after the other. Command lines and
//! outputs are those of 0.6.

use super::nodetool::{Client, ServerArguments, members};
use super::output::{self, FAILED, Failure};
use crate::admin::ring_report::{ClusterStatus, Status};
use clap::{ArgAction, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

/// How long a node may take to answer what it knows at once.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,

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
#[command(rename_all = "snake_case")]
enum Command {
    /// Prints the nodes that hold a row
    GetEndpoints {
        /// The keyspace
        keyspace: String,
        /// The row key
        key: String,
    },
    /// Takes a snapshot on each node that is up
    GlobalSnapshot {
        /// A name for it, besides the time
        name: Option<String>,
    },
    /// Removes all snapshots on each node that is up
    ClearGlobalSnapshot,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let server = &arguments.server;
    let first = server.client(TIMEOUT)?;
    match &arguments.command {
        Command::GetEndpoints { keyspace, key } => {
            let parameters = members(json!({ "keyspace": keyspace, "key": key }));
            let found: Vec<IpAddr> = first.call(&Method::GET, "/api/v1/endpoints", &parameters)?;
            if arguments.json {
                output::text(&format!("{:#}\n", json!({ "key": key, "endpoints": found })));
            } else {
                let found: Vec<String> = found.iter().map(|it| format!("/{it}")).collect();
                let found = found.join(", ");
                output::text(&format!("{:<17}: {key}\n{:<17}: [{found}]\n", "Key", "Endpoints"));
            }
            Ok(output::finish_telling(ExitCode::SUCCESS, FAILED))
        }
        Command::GlobalSnapshot { name } => {
            let call = (Method::POST, members(json!({ "tag": name })));
            on_all(arguments, first, &call, ["taken", "FAILED"])
        }
        Command::ClearGlobalSnapshot => {
            on_all(arguments, first, &(Method::DELETE, Map::new()), ["cleared", "clear FAILED"])
        }
    }
}

/// Does something to the snapshots of each node that is up, and tells the outcome.
fn on_all(
    Arguments { server, json, .. }: &Arguments,
    first: Client,
    (method, parameters): &(Method, Map<String, Value>),
    [done, failed]: [&str; 2],
) -> Result<ExitCode, Failure> {
    let status: ClusterStatus = first.get("/api/v1/status")?;
    let mut nodes = vec![(server.host.clone(), Ok(first))];
    for node in status.nodes {
        if node.status == Status::Up && node.address != status.local {
            let host = node.address.to_string();
            let client = server.client_of(&host, TIMEOUT);
            nodes.push((host, client));
        }
    }
    let mut exit_code = ExitCode::SUCCESS;
    let mut told = Vec::new();
    for (host, client) in nodes {
        let call = |client: Client| client.call::<Value>(method, "/api/v1/snapshots", parameters);
        let error = client.and_then(call).err().map(|failure| failure.text);
        if error.is_some() {
            exit_code = ExitCode::from(FAILED);
        }
        if *json {
            told.push(json!({ "host": host, "error": error }));
            continue;
        }
        output::text(&match error {
            None => format!("{host} snapshot {done}\n"),
            Some(why) => format!("{host} snapshot {failed}: {why}\n"),
        });
    }
    if *json {
        output::text(&format!("{:#}\n", Value::from(told)));
    }
    Ok(output::finish(exit_code))
}
