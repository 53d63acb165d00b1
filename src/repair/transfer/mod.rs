//! Pages of rows of other nodes become SSTables.

pub(super) mod fetch;
pub(super) mod plan;

pub use plan::NoSource;
