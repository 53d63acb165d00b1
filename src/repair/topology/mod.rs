//! Changes of the ring: nodes join, leave, move, are removed and replaced.

mod agreement;
mod changes;
mod cleanup;
mod joining;
mod leaving;
mod lifecycle;
mod start_mode;
pub(super) mod steps;

pub use lifecycle::Lifecycle;
pub use start_mode::{StartMode, StartOptions};
