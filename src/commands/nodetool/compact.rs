//! `nodetool compact [keyspace [column families…]]`. Unlike that of 0.6 it returns when the
//! compactions have ended.

use super::client::Client;
use super::flush;
use super::{NodetoolError, Output};
use crate::admin::report::Done;

/// Which column families are meant.
pub(super) type Arguments = flush::Arguments;

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let done: Done = client.work("/api/v1/compact", arguments)?;
    Ok(Output::new(&done, String::new()))
}
