//! Transfer of rows from other nodes into SSTables.

mod fetch;
pub(super) mod plan;

pub(super) use fetch::{Fetcher, MAX_PAGE};
pub(super) use plan::WantedRange;
