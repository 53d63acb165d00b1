//! `nodetool snapshot`, `clearsnapshot` and `listsnapshots`. 0.6 had the first two, for all
//! keyspaces and all snapshots, and they printed nothing.

use super::client::{Client, query};
use super::{NodetoolError, Output};
use crate::admin::report::Snapshot;
use crate::base::utc::UtcTime;
use serde::Serialize;
use std::fmt::Write;

const PATH: &str = "/api/v1/snapshots";

#[derive(Debug, clap::Args, Serialize)]
pub(super) struct TakeArguments {
    /// One keyspace instead of all
    #[arg(long)]
    keyspace: Option<String>,

    /// A name for it, besides the time
    tag: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ClearArguments {
    /// Those of one keyspace
    #[arg(long)]
    keyspace: Option<String>,

    /// Those of this name or tag
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// Those of one keyspace
    #[arg(long)]
    keyspace: Option<String>,
}

pub(super) fn take(client: &Client, arguments: &TakeArguments) -> Result<Output, NodetoolError> {
    let taken: Vec<Snapshot> = client.work(PATH, arguments)?;
    Ok(Output::new(&taken, String::new()))
}

pub(super) fn clear(client: &Client, arguments: &ClearArguments) -> Result<Output, NodetoolError> {
    let ClearArguments { keyspace, name } = arguments;
    let parameters = [("keyspace", keyspace.as_deref()), ("name", name.as_deref())];
    let cleared: Vec<Snapshot> = client.delete(&query(PATH, &parameters))?;
    Ok(Output::new(&cleared, String::new()))
}

pub(super) fn list(client: &Client, arguments: &ListArguments) -> Result<Output, NodetoolError> {
    let parameters = [("keyspace", arguments.keyspace.as_deref())];
    let found: Vec<Snapshot> = client.get(&query(PATH, &parameters))?;
    Ok(Output::new(&found, render(&found)))
}

/// The table of `alexandra snapshot list`.
fn render(snapshots: &[Snapshot]) -> String {
    if snapshots.is_empty() {
        return "no snapshot found\n".to_owned();
    }
    let mut text = String::new();
    let mut line = |[keyspace, name, taken, own, all]: [&str; 5]| {
        let _ = writeln!(text, "{keyspace:<20} {name:<40} {taken:<24} {own:>12} {all:>12}");
    };
    line(["Keyspace", "Snapshot", "Taken", "Own KB", "KB"]);
    for Snapshot { keyspace, name, taken_millis, exclusive_bytes, total_bytes, .. } in snapshots {
        let kilobytes = |bytes: &u64| bytes.div_ceil(1024).to_string();
        let taken = UtcTime(*taken_millis).to_string();
        line([keyspace, name, &taken, &kilobytes(exclusive_bytes), &kilobytes(total_bytes)]);
    }
    text
}
