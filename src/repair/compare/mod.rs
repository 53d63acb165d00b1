//! Repair by comparison: the replicas of a range find out in which rows they differ, and each gets
//! what it lacks.
//!
//! ```text
//! session       the node that repairs: has all hash their rows, compares, and has them collect
//!   shape       which replicas share which ranges, and how these are divided
//!   differences rows and leaves that differ, and what each replica lacks
//! validation    each replica: hashes of leaves, then of single rows
//!   hashing     the hashes
//!   remembered  hashes of what has not changed since, also over a restart
//!   leaves      how ranges are divided: all replicas do it in the same way
//! ```
//!
//! First the replicas compare leaves: parts of the ranges, each with the XOR of the hashes of its
//! rows. In those that differ they compare single rows, and only rows that differ travel, in both
//! directions. All flush before, and all leave the same deletions out: those that were made before
//! one second, which the node that repairs has chosen. So replicas that have the same say the same,
//! however their rows are spread over memtables and SSTables.
//!
//! Replicas do their part in jobs. What has been collected when a repair fails stays.

mod differences;
mod hashing;
pub(super) mod leaves;
pub(super) mod ranges;
mod remembered;
mod session;
mod shape;
mod tree_hash;
mod validation;

pub(super) use hashing::{HashSink, HashedRow, ListedRow};
pub(super) use leaves::Shape;
pub use session::FamilyRepair;
pub use shape::RepairScope;
pub(super) use tree_hash::TreeHash;
pub(super) use validation::Validator;
