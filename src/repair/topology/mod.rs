//! Changes of the ring: nodes join, leave, move, are removed and replaced.
//!
//! All changes are made of the same steps:
//!
//! ```text
//! announce    this node announces the change: writes go to the future replicas as well
//! be heard    all live nodes know it, and have ended the writes that they began before
//! hand over   each future replica collects its data
//! switch      this node saves the new place and announces it
//! ```
//!
//! A node that collects after that misses nothing: a write was either acknowledged by its sources,
//! or went to the collector as well. 0.6 waits thirty seconds instead.

mod agreement;
mod audience;
mod changes;
mod cleanup;
mod first_place;
mod handover;
mod joining;
mod leaving;
mod lifecycle;
mod start_mode;
mod token;

pub use lifecycle::Lifecycle;
pub use start_mode::{StartMode, StartOptions};
pub(super) use token::halving_token;
