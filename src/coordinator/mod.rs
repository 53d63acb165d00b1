//! The distributed part of a request: the replicas of a row, the answers that are needed from them,
//! and the treatment of missing ones.
//!
//! ```text
//!   coordinator      Coordinator: its state and options
//!     view           the ring at one moment: replicas of a row, and which of them are alive
//!     consistency    levels, and the replicas whose answers they need
//!     writes         replicas, hints, acknowledgements, and this node's own rows
//!       write_request    the part that outlives the answer
//!     reads          rows by key: this node's own reads, and other replicas in its place
//!       row_read     one row, asked of several replicas: no network in it, and no clock
//!       latencies    latencies of replicas, and the delay before one more is asked
//!     scan           ranges of rows, page by page
//!       range_read   pages of several replicas, merged; the position of a scan
//!     repair         replicas that lack something get it
//!     batches        logged batches, which other nodes keep until they are done
//!     registers      conditional writes: decisions by the Paxos algorithm
//!     quorum         the driver of questions to several replicas
//! ```

mod batches;
mod consistency;
#[allow(clippy::module_inception, reason = "named after its one type")]
mod coordinator;
mod latencies;
mod quorum;
mod range_read;
mod reads;
mod registers;
mod repair;
mod row_read;
mod scan;
mod view;
mod write_request;
mod writes;

pub use crate::replica::{Row, RowQuery, take_key};
pub use batches::BatchError;
pub use consistency::{ConsistencyLevel, ReplicaCounts};
pub use coordinator::{
    Coordinator, CoordinatorError, CoordinatorOptions, CoordinatorStats, ReadOptions,
};
pub use registers::{CasOutcome, Missing, RegisterError, SerialConsistency};
pub use scan::{Scan, ScanQuery};
pub use view::Peers;
pub use write_request::Hinting;
