//! What one node does for a verb: apply a mutation, read a row, scan a range.
//!
//! ```text
//!   verbs        Replica: tries the store inline, and hands to a worker what would block
//!     workers    bounded threads with a bounded queue, for reads and for blocked writes
//!     local_store    what a node keeps its data in, as this layer sees it
//!     storage    the storage core as such a store
//! ```

mod local_store;
mod storage;
#[cfg(test)]
pub(crate) mod tests;
mod verbs;
mod workers;

pub use local_store::{Applied, LocalStore, LogPosition, WriteError};
pub use verbs::{Answer, Replica, ReplicaError, ReplicaOptions, Row, Ticket, VersionedRow};
pub use workers::{Abandoned, QUEUE_LENGTH, WorkerPool};
