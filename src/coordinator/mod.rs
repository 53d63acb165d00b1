//! The distributed part of a request: which replicas a row has, how many must take part, and what
//! to do when they do not.
//!
//! ```text
//!   coordinator      Coordinator: what it knows, and what it is asked for
//!     view           the ring at one moment: the replicas of a row, and who of them is alive
//!     consistency, requirement    whose answers a level needs
//!     writes         write: replicas, hints, acknowledgements
//!       write_request    counts acknowledgements; whoever is missing at the end gets a hint
//!       unacknowledged   how much a silent node may have waiting
//!       own_writes       what this node writes as one of the replicas
//!       hinting          what is kept for replicas that were not there
//!     reads          read and count
//!       own_reads    what this node reads by itself, and when others are asked in its place
//!       row_read     one row, asked of several replicas: no network in it, and no clock
//!       latencies    how long replicas take, and when one more is asked
//!     scan           ranges of rows, page by page
//!       range_read   the pages of several replicas, merged
//!       row_cursor   where a scan goes on that is made a page at a time
//!     repair         replicas that lack something get it
//!     quorum         the driver of questions to several replicas
//! ```

mod consistency;
#[allow(clippy::module_inception, reason = "named after its one type")]
mod coordinator;
mod error;
mod hinting;
mod latencies;
mod own_reads;
mod own_writes;
mod quorum;
mod range_read;
mod reads;
mod repair;
mod requirement;
mod row_cursor;
mod row_read;
mod scan;
mod unacknowledged;
mod view;
mod write_request;
mod writes;

pub use crate::replica::{Row, RowQuery, take_key};
pub use consistency::ConsistencyLevel;
pub use coordinator::{Coordinator, CoordinatorOptions, CoordinatorStats, ReadOptions};
pub use error::CoordinatorError;
pub use hinting::Hinting;
pub use scan::{Scan, ScanQuery};
pub use view::Peers;
