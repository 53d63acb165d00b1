//! Compaction: merges SSTables, so that reads have few to look at, and drops what is deleted.
//!
//! ```text
//!   strategy    chooses what to merge; `leveled` does so for levels
//!   pressure    how much is waiting, and what follows: a looser throttle, slower writes
//!   merge       does it: [`Compactor`], one for a node
//!   fate        whether an SSTable has rows that stay, and rows that do not
//!   throttle    shared by all compactions of the node
//!   progress    what is running; `lines` tell the operator
//!   thresholds  how many SSTables are merged
//!   validate    gives what would be written to who compares it
//! ```
//!
//! A compaction works on SSTables that its [claim](super::family::Claim) keeps from others, and
//! replaces them in one step at its end. Until then nothing is lost if it is stopped anywhere.

mod fate;
mod leveled;
pub(in crate::storage) mod lines;
mod merge;
mod pressure;
mod progress;
mod strategy;
mod thresholds;
mod throttle;
mod validate;

pub use fate::Fate;
pub use merge::{CompactionError, Compactor};
pub use pressure::{Backlog, Pressure};
pub use progress::{CompactionKind, CompactionProgress, CompactionTotals};
pub use strategy::{Candidate, Circumstances, Plan, backlog, next_minor};
pub use thresholds::{AtomicThresholds, ThresholdError, Thresholds};
pub(in crate::storage) use validate::Reading;
pub(in crate::storage) use validate::give_row;
pub use validate::{GcSpan, RowSink, Validated};
