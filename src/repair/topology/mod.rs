//! Changes of the ring: nodes join, leave, move, are removed and replaced.
//!
//! All changes are made of the same steps:
//!
//! ```text
//! announce    this node says what is about to be: writes go to the replicas to be as well
//! be heard    all live nodes know it, and have ended what they began before
//! hand over   each node that becomes a replica collects its data
//! switch      this node saves the new place and says that it is so
//! ```
//!
//! A node that collects after all were quiet misses nothing: a write was either acknowledged by
//! those that data are collected from, or went to the collector as well. The original waits thirty
//! seconds instead, and hopes.

mod agreement;
mod audience;
mod changes;
mod cleanup;
mod first_place;
mod handover;
mod joining;
mod leaving;
mod lifecycle;
mod memory;
mod start_mode;
mod token;

pub use lifecycle::Lifecycle;
pub use start_mode::{StartMode, StartOptions};
pub(super) use token::halving_token;
