//! `nodetool flush [keyspace [column families…]]`. Unlike that of 0.6 it returns when the memtables
//! are on disk.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::Done;
use serde::Serialize;

/// Which column families are meant.
#[derive(Debug, clap::Args, Serialize)]
pub(super) struct Arguments {
    /// All keyspaces without it
    keyspace: Option<String>,

    /// All of the keyspace without any
    column_families: Vec<String>,
}

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let done: Done = client.work("/api/v1/flush", arguments)?;
    Ok(Output::new(&done, String::new()))
}
