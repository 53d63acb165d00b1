//! Rows of other nodes become SSTables, page by page.

mod fetch;
pub(super) mod plan;

pub(super) use fetch::{FetchError, Fetcher, MAX_PAGE};
pub use plan::NoSource;
pub(super) use plan::WantedRange;
