//! The distributed part of a request: which replicas a key has, how many must take part, and what
//! to do when they do not.
//!
//! ```text
//!   coordinator      Coordinator: write, read, count and scan at a consistency level
//!     consistency    how many replicas a level asks for
//! ```

mod consistency;
#[allow(clippy::module_inception, reason = "named after its one type")]
mod coordinator;
mod error;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::replica::Ticket;
pub use consistency::ConsistencyLevel;
pub use coordinator::{Coordinator, CoordinatorOptions};
pub use error::CoordinatorError;
