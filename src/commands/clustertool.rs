//! `alexandra clustertool`: acts on all nodes of a ring, one after the other. Command lines and
//! outputs are those of 0.6.

use super::nodetool::{Client, token};
use super::output::{self, FAILED, Failure};
use crate::admin::ring_report::{ClusterStatus, Status};
use clap::{ArgAction, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long a node may take to answer what it knows at once.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Arguments {
    /// A node of the ring
    #[arg(short = 'h', long, global = true, default_value = "127.0.0.1", value_name = "HOST")]
    host: String,

    /// AdminPort of all nodes
    #[arg(short = 'p', long, global = true, default_value_t = 8080, value_name = "PORT")]
    port: u16,

    /// A file that holds the AdminToken of all nodes
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,

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
    let token = token(arguments.token_file.as_deref())?;
    let client = |host: &str| Client::new(host, arguments.port, token.clone(), TIMEOUT);
    let first = client(&arguments.host)?;
    match &arguments.command {
        Command::GetEndpoints { keyspace, key } => {
            let parameters = object(json!({ "keyspace": keyspace, "key": key }));
            let endpoints: Vec<IpAddr> =
                first.call(&Method::GET, "/api/v1/endpoints", &parameters)?;
            let endpoints: Vec<String> = endpoints.iter().map(|it| format!("/{it}")).collect();
            output::text(&format!(
                "{:<17}: {key}\n{:<17}: [{}]\n",
                "Key",
                "Endpoints",
                endpoints.join(", ")
            ));
            Ok(output::finish_telling(ExitCode::SUCCESS, FAILED))
        }
        Command::GlobalSnapshot { name } => {
            let call = (Method::POST, object(json!({ "tag": name })));
            on_all(&arguments.host, first, client, &call, ["taken", "FAILED"])
        }
        Command::ClearGlobalSnapshot => on_all(
            &arguments.host,
            first,
            client,
            &(Method::DELETE, Map::new()),
            ["cleared", "clear FAILED"],
        ),
    }
}

/// Members of an object that are there.
fn object(parameters: Value) -> Map<String, Value> {
    let Value::Object(mut parameters) = parameters else { return Map::new() };
    parameters.retain(|_, value| !value.is_null());
    parameters
}

/// Does something to the snapshots of each node that is up, and tells what came of it.
fn on_all(
    host: &str,
    first: Client,
    client: impl Fn(&str) -> Result<Client, Failure>,
    (method, parameters): &(Method, Map<String, Value>),
    [done, failed]: [&str; 2],
) -> Result<ExitCode, Failure> {
    let status: ClusterStatus = first.get("/api/v1/status")?;
    let others =
        status.nodes.iter().filter(|it| it.status == Status::Up && it.address != status.local);
    let others: Vec<String> = others.map(|it| it.address.to_string()).collect();
    let mut exit_code = ExitCode::SUCCESS;
    let mut nodes = vec![(host.to_owned(), Ok(first))];
    nodes.extend(others.into_iter().map(|host| (host.clone(), client(&host))));
    for (host, client) in nodes {
        let call = |client: Client| client.call::<Value>(method, "/api/v1/snapshots", parameters);
        match client.and_then(call) {
            Ok(_) => output::text(&format!("{host} snapshot {done}\n")),
            Err(Failure { text, .. }) => {
                output::text(&format!("{host} snapshot {failed}: {text}\n"));
                exit_code = ExitCode::from(FAILED);
            }
        }
    }
    Ok(output::finish(exit_code))
}

/// The arguments as this program takes them, of a call under the name of the script.
pub(super) fn of_old(mut arguments: Vec<OsString>) -> Vec<OsString> {
    arguments.splice(..1, ["alexandra".into(), "clustertool".into()]);
    arguments
}
