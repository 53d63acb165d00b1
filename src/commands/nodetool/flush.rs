//! `nodetool flush [keyspace [column families…]]`. Unlike that of 0.6 it returns when the memtables
//! are on disk, unless it is told not to wait.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::Done;
use serde_json::{Value, json};

/// Which column families are meant.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Returns at once, as 0.6 did: failures are in the log of the server only
    #[arg(long)]
    no_wait: bool,

    /// All keyspaces without it
    pub(super) keyspace: Option<String>,

    /// All of the keyspace without any
    pub(super) column_families: Vec<String>,
}

impl Arguments {
    /// As the server takes them.
    pub(super) fn body(&self) -> Value {
        let Self { no_wait, keyspace, column_families } = self;
        json!({ "keyspace": keyspace, "column_families": column_families, "wait": !no_wait })
    }
}

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let done: Done = client.work("/api/v1/flush", &arguments.body())?;
    Ok(Output::new(&done, String::new()))
}
