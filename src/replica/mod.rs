//! The work of one node for a verb: apply a mutation, read a row, scan a range.
//!
//! ```text
//!   responder    the verbs as other nodes ask for them, and their answers
//!   verbs        Replica: tries the storage inline, and hands blocking work to threads
//!   batches      logged batches that it keeps for coordinators
//!   registers    its part in decisions on registers
//!   hints        HintStore: mutations for other nodes that were down or too slow
//! ```

mod batches;
mod hints;
mod registers;
mod responder;
#[cfg(test)]
mod tests;
mod verbs;

pub use crate::base::worker::{Abandoned, PoolLoad};
pub use crate::storage::answer::{take_key, take_row};
pub use crate::storage::system::batches as kept_batches;
pub use hints::{
    DurableCallback, Hint, HintBatch, HintError, HintOptions, HintPosition, HintStats, HintStore,
    ORIGINAL_FAMILY as ORIGINAL_HINTS, SEGMENT_BYTES as HINT_SEGMENT_BYTES, TargetStats,
    convert as convert_original_hints, has_original_hints, targets_in as hint_targets,
};
pub use registers::Follower;
pub use responder::{OwnReadiness, Readiness, Responder, ResponderOptions};
pub use verbs::{
    Answer, PendingRead, RangeQuery, Replica, ReplicaError, ReplicaOptions, Row, RowQuery,
    VersionedRow,
};
