//! `nodetool setcachecapacity`.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::Caches;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The keyspace
    keyspace: String,

    /// The column family
    column_family: String,

    /// Keys that the key cache may hold; 0 switches it off
    key_cache_capacity: u64,

    /// Rows that the row cache may hold; 0 switches it off
    row_cache_capacity: u64,
}

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let body = json!({
        "keyspace": arguments.keyspace,
        "column_family": arguments.column_family,
        "key_cache": arguments.key_cache_capacity,
        "row_cache": arguments.row_cache_capacity,
    });
    let caches: Caches = client.set("/api/v1/cache-capacities", &body)?;
    Ok(Output::new(&caches, String::new()))
}
