//! What one node does for a verb: apply a mutation, read a row, scan a range.
//!
//! ```text
//!   responder    the verbs as other nodes ask for them, and their answers
//!     readiness  how far they may rely on this node: for nothing yet, for writes, for all
//!   verbs        Replica: tries the storage inline, and hands to a worker what would block
//!     lane       threads for short reads, and few for long ones
//!     workers    bounded threads with a bounded queue, for reads and for blocked writes
//!   blocking     work that may wait for a disk, off the threads that carry messages and gossip
//!   hints        HintStore: what is kept for other nodes that were down or too slow
//! ```

mod blocking;
mod hints;
mod lane;
mod readiness;
mod responder;
#[cfg(test)]
mod tests;
mod verbs;
mod workers;

pub use crate::storage::answer::{take_key, take_row};
pub use blocking::Blocking;
pub use hints::{
    DurableCallback, Hint, HintBatch, HintError, HintOptions, HintPosition, HintStats, HintStore,
    SEGMENT_BYTES as HINT_SEGMENT_BYTES, TargetStats,
};
pub use readiness::{OwnReadiness, Readiness};
pub use responder::{Responder, ResponderOptions};
pub use verbs::{
    Answer, PendingRead, RangeQuery, Replica, ReplicaError, ReplicaOptions, Row, RowQuery,
    VersionedRow,
};
pub use workers::{Abandoned, PoolLoad, QUEUE_LENGTH, WorkerPool};
