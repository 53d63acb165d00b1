//! `nodetool decommission`, `move`, `loadbalance`, `removetoken` and `cleanup`: what changes the
//! ring, and what is left to do after that. They wait until it is done; those of 0.6 did so in
//! part.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::{Collected, OperationState, Received};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// How often the server is asked how far it is.
const POLL: Duration = Duration::from_millis(500);

/// What 0.6 says, and how it is done.
const REPAIR_USAGE: &str = "Missing keyspace argument.\n\
    usage: alexandra nodetool repair KEYSPACE [COLUMN_FAMILIES]... [--primary-range] [--no-wait]";

/// Whether to wait.
#[derive(Debug, clap::Args, Serialize)]
pub(super) struct Waiting {
    /// Returns when it has begun; `streams` tells how far it is
    #[arg(long)]
    #[serde(skip)]
    no_wait: bool,
}

/// Where to go.
#[derive(Debug, clap::Args, Serialize)]
pub(super) struct MoveArguments {
    /// The new token, as the partitioner writes it
    token: String,

    #[command(flatten)]
    #[serde(flatten)]
    waiting: Waiting,
}

/// Whom to remove.
#[derive(Debug, clap::Args, Serialize)]
pub(super) struct RemoveArguments {
    /// The token of the dead node, as `nodetool ring` shows it
    token: String,

    /// Also if too few replicas of a range are alive: what only the others have is given up
    #[arg(long)]
    accept_loss: bool,

    #[command(flatten)]
    #[serde(flatten)]
    waiting: Waiting,
}

/// What to clean up.
#[derive(Debug, clap::Args, Serialize)]
pub(super) struct CleanupArguments {
    /// All keyspaces without it
    keyspace: Option<String>,

    /// Taken as in 0.6, and ignored as there: all of the keyspace is cleaned up
    #[serde(skip)]
    column_families: Vec<String>,

    #[command(flatten)]
    #[serde(flatten)]
    waiting: Waiting,
}

/// What to repair.
#[derive(Debug, clap::Args, Serialize)]
pub(super) struct RepairArguments {
    /// The keyspace
    keyspace: Option<String>,

    /// All of the keyspace without any
    column_families: Vec<String>,

    /// Only the range that the node owns: enough if it is done on all nodes
    #[arg(long)]
    primary_range: bool,

    #[command(flatten)]
    #[serde(flatten)]
    waiting: Waiting,
}

pub(super) fn decommission(client: &Client, waiting: &Waiting) -> Result<Output, NodetoolError> {
    begin(client, "/api/v1/ring/decommission", waiting, waiting)
}

pub(super) fn loadbalance(client: &Client, waiting: &Waiting) -> Result<Output, NodetoolError> {
    begin(client, "/api/v1/ring/loadbalance", waiting, waiting)
}

pub(super) fn move_to(client: &Client, arguments: &MoveArguments) -> Result<Output, NodetoolError> {
    begin(client, "/api/v1/ring/move", arguments, &arguments.waiting)
}

pub(super) fn remove(
    client: &Client,
    arguments: &RemoveArguments,
) -> Result<Output, NodetoolError> {
    begin(client, "/api/v1/ring/remove-token", arguments, &arguments.waiting)
}

pub(super) fn cleanup(
    client: &Client,
    arguments: &CleanupArguments,
) -> Result<Output, NodetoolError> {
    begin(client, "/api/v1/cleanup", arguments, &arguments.waiting)
}

pub(super) fn repair(
    client: &Client,
    arguments: &RepairArguments,
) -> Result<Output, NodetoolError> {
    if arguments.keyspace.is_none() {
        return Err(NodetoolError::Usage(REPAIR_USAGE));
    }
    begin(client, "/api/v1/repair", arguments, &arguments.waiting)
}

/// Begins something, and waits until it is done unless it is not to be waited for.
fn begin(
    client: &Client,
    path: &str,
    body: &impl Serialize,
    waiting: &Waiting,
) -> Result<Output, NodetoolError> {
    let mut state: OperationState = client.work(path, body)?;
    if waiting.no_wait {
        return Ok(Output::new(&state, String::new()));
    }
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(POLL);
    let asked = state.operation.clone();
    while state.done.is_none() && state.error.is_none() {
        bar.set_message(brief(&state));
        std::thread::sleep(POLL);
        let now: Option<OperationState> = client.get("/api/v1/ring/operation")?;
        match now {
            Some(now) if now.operation == asked => state = now,
            _ => return Err(NodetoolError::Lost(asked)),
        }
    }
    bar.finish_and_clear();
    match &state.error {
        Some(error) => Err(NodetoolError::Failed(error.clone())),
        None => Ok(Output::new(&state, report(&state))),
    }
}

/// How far it is, in one line.
fn brief(state: &OperationState) -> String {
    let sum = |of: fn(&Collected) -> u64| state.collected.iter().map(of).sum::<u64>();
    let bytes: u64 = state.collected.iter().map(|it| it.bytes).sum();
    let mut text = state.mode.clone();
    if !state.collected.is_empty() {
        let (done, all) = (sum(|it| it.ranges_done), sum(|it| it.ranges));
        let _ = write!(text, " ({done} of {all} ranges, {bytes} bytes)");
    }
    let (hashed, all) = (state.rows_hashed, state.rows_to_hash);
    if let Some(percent) = (hashed.min(all) * 100).checked_div(all) {
        let _ = write!(text, ": {hashed} of about {all} rows read, {percent} %");
    }
    text
}

/// What was done.
fn report(state: &OperationState) -> String {
    let mut text = String::new();
    for Collected { address, ranges, rows, bytes, .. } in &state.collected {
        let _ =
            writeln!(text, "{address} has collected {ranges} ranges: {rows} rows, {bytes} bytes");
    }
    for family in &state.repaired {
        let _ = writeln!(
            text,
            "{}: {} ranges compared, {} rows read, {} rows of {} bytes differed",
            family.column_family,
            family.ranges,
            family.rows_read,
            family.rows_differed,
            family.bytes_differed
        );
        for Received { address, rows, bytes } in &family.received {
            let _ = writeln!(text, "    {address} has got {rows} rows, {bytes} bytes");
        }
    }
    let done = state.done.as_deref().unwrap_or_default();
    let _ = writeln!(text, "{}: {done}, in {:.1} s", state.operation, state.seconds);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::report::Repaired;

    #[test]
    fn what_was_done_is_told() {
        let state = OperationState {
            operation: "decommission".to_owned(),
            mode: "Decommissioned".to_owned(),
            seconds: 2.25,
            collected: vec![Collected {
                address: [10, 0, 0, 2].into(),
                ranges: 4,
                ranges_done: 4,
                rows: 7,
                bytes: 900,
            }],
            repaired: Vec::new(),
            rows_hashed: 0,
            rows_to_hash: 0,
            done: Some("this node has left".to_owned()),
            error: None,
        };
        assert_eq!(
            report(&state),
            "10.0.0.2 has collected 4 ranges: 7 rows, 900 bytes\n\
             decommission: this node has left, in 2.2 s\n"
        );
        assert_eq!(brief(&state), "Decommissioned (4 of 4 ranges, 900 bytes)");
    }
    #[test]
    fn a_repair_tells_how_far_it_is_and_what_it_has_done() {
        let received = Received { address: [10, 0, 0, 3].into(), rows: 2, bytes: 410 };
        let mut state = OperationState {
            operation: "repair".to_owned(),
            mode: "Repairing Blog.Authors".to_owned(),
            seconds: 1.5,
            collected: Vec::new(),
            repaired: vec![Repaired {
                column_family: "Blog.Authors".to_owned(),
                ranges: 3,
                rows_read: 300,
                rows_differed: 2,
                bytes_differed: 200,
                received: vec![received],
            }],
            rows_hashed: 150,
            rows_to_hash: 300,
            done: Some("3 ranges".to_owned()),
            error: None,
        };
        assert_eq!(brief(&state), "Repairing Blog.Authors: 150 of about 300 rows read, 50 %");
        (state.rows_hashed, state.rows_to_hash) = (0, 0);
        assert_eq!(brief(&state), "Repairing Blog.Authors");
        assert_eq!(
            report(&state),
            "Blog.Authors: 3 ranges compared, 300 rows read, 2 rows of 200 bytes differed\n\
             \u{20}   10.0.0.3 has got 2 rows, 410 bytes\n\
             repair: 3 ranges, in 1.5 s\n"
        );
    }
}
