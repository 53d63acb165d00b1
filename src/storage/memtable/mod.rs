//! Memtables.
pub mod tree;
