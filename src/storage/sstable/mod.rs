//! SSTables.
pub mod block;
pub mod filter;
