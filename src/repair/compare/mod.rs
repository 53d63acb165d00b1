//! Repair by comparison: the replicas of a range find the rows in which they differ, and each
//! collects what it lacks.
//!
//! ```text
//! session       the repairing node: has replicas hash their rows, compares, has them collect
//!   shape       replicas of ranges, and the division of ranges into leaves
//!   differences differing leaves and rows, and what each replica lacks
//! validation    each replica: hashes of leaves, then of single rows
//!   hashing     the hashes
//!   remembered  hashes of unchanged leaves, also over a restart
//!   leaves      division of ranges, the same on all replicas
//! ```
//!
//! First the replicas compare leaves: parts of the ranges, each with the XOR of the hashes of its
//! rows. In differing leaves they compare single rows, and only differing rows travel, in both
//! directions. All flush first, and all leave out the same deletions: those from before one second,
//! which the repairing node chooses. So replicas with equal data have equal hashes, however their
//! rows are spread over memtables and SSTables.
//!
//! Replicas do their part in jobs. If a repair fails, what was collected stays.

mod differences;
mod hashing;
pub(super) mod leaves;
mod remembered;
mod session;
mod shape;
mod validation;

pub(super) use hashing::{HashSink, HashedRow, ListedRow};
pub(super) use leaves::{Shape, TreeHash};
pub use session::{FamilyRepair, Received};
pub use shape::RepairScope;
pub(super) use validation::Validator;
