//! Rows of other nodes become SSTables, page by page.

mod fetch;
pub(super) mod plan;

pub(super) use fetch::{Fetcher, MAX_PAGE};
pub(super) use plan::WantedRange;
