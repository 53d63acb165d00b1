//! The storage core: the data of one node, on disk and in memory. Synchronous, knows no network.
//!
//! A write goes to the [`commitlog`], then to the [`memtable`] of each of its column families. A
//! full memtable is written as an [`sstable`]; [`compaction`] merges SSTables of similar size. A
//! read merges the memtables and those SSTables that may hold cells of the row ([`row`]); a range
//! read does so for many rows in token order ([`rows`]). [`caches`] keep data that are read often.
//! [`family`] is one column family, [`Database`] all of them with the log and the background work.
//!
//! - [`offline`]: access of tools to the files of a stopped server
//! - [`check`]: verifies files, and reads the sound rows of damaged ones
//! - [`json`]: rows as text, for export and import
//! - [`mod@log`]: record logs, the form of commit log and hints
//! - [`archive`]: old segments of the commit log
//! - [`snapshot`], [`restore`]: the files of one moment, and the way back to them
//! - [`legacy`]: directories of 0.4 to 0.6: reads them where they lie, writes them for nodes of 0.6
//! - [`system`]: the node's own notes
//! - [`manifest`]: the live SSTables; a file counts from the moment it is named there
//! - [`files`]: the only place that builds and parses file names

pub mod answer;
pub mod archive;
pub mod caches;
pub mod check;
pub mod checked_file;
pub mod commitlog;
pub mod compaction;
pub mod database;
pub mod directory;
pub mod error;
pub mod family;
pub mod files;
pub mod flush_queue;
pub mod json;
pub mod legacy;
pub mod log;
pub mod manifest;
pub mod memtable;
pub mod offline;
pub mod options;
pub mod restore;
pub mod row;
pub mod rows;
pub mod snapshot;
pub mod sstable;
pub mod system;

pub use database::Database;
pub use options::{CacheOptions, CompactionOptions, CompactionStrategy, FamilyOptions, Options};
