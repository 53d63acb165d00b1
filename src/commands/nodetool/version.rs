//! `nodetool version`; 0.6 had none, later releases print the same line.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::Info;
use serde_json::json;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let Info { version, .. } = client.get("/api/v1/info")?;
    let text = format!("ReleaseVersion: Alexandra {version}\n");
    Ok(Output::new(&json!({ "version": version }), text))
}
