//! The storage core.
pub mod cache;
pub mod error;
pub mod memtable;
pub mod sstable;
