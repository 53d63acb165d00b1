//! Compaction: merges SSTables, so that reads have few to look at, and drops what is deleted.

mod merge;
mod purge;
mod strategy;
mod throttle;

pub use merge::{CompactionError, compact};
pub use strategy::next_minor;
