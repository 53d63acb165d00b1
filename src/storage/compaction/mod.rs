//! Compaction: merges SSTables, so that reads have few to look at, and drops deleted data.
//!
//! ```text
//!   strategy    chooses what to merge; `leveled` does so for levels
//!   pressure    the work that waits, and its effects: a looser throttle, slower writes
//!   job         a running compaction: pace, progress, log lines
//!   merge       writes the merged rows
//!   fate        whether an SSTable has rows that stay, and rows that do not
//!   throttle    shared by all compactions of the node
//!   thresholds  numbers of SSTables that are merged
//!   validate    merged rows for a comparison of replicas
//! ```
//!
//! A compaction works on SSTables that its [claim](super::family::Claim) keeps from others, and
//! replaces them in one step at its end. Until then it may be stopped anywhere without a loss.

mod fate;
mod job;
mod leveled;
mod merge;
mod pressure;
mod strategy;
mod thresholds;
mod throttle;
mod validate;

pub use fate::Fate;
pub(in crate::storage) use job::TARGET;
pub use job::{CompactionError, CompactionKind, CompactionProgress, CompactionTotals, Compactor};
pub use pressure::{Backlog, Pressure};
pub use strategy::{Candidate, Circumstances, Plan, backlog, next_minor};
pub use thresholds::{ThresholdError, Thresholds};
pub(in crate::storage) use validate::give_row;
pub use validate::{GcSpan, RowSink, Validated};
