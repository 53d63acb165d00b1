//! `nodetool drain`: as in 0.6 it prints nothing, and returns when everything is on disk.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::DrainReport;
use serde_json::json;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let report: DrainReport = client.work("/api/v1/drain", &json!({}))?;
    if report.memtables_left == 0 {
        return Ok(Output::new(&report, String::new()));
    }
    let text = format!(
        "{} memtables were written, but {} could not be: the next start replays them from the \
         commit log. The log of the server says why\n",
        report.memtables_flushed, report.memtables_left
    );
    Ok(Output::new(&report, text).failing())
}
