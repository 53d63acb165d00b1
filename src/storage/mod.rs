//! The storage core: what one node keeps, on disk and in memory. Synchronous, knows no network.
//!
//! A write goes to the [`commitlog`], then to the [`memtable`] of each of its column families. A
//! full memtable is written as an [`sstable`]; [`compaction`] merges SSTables of similar size. A
//! read merges the memtables and those SSTables that may hold something of the row ([`row`]); a
//! range read does so for many rows in token order ([`rows`]). What is read often is kept in
//! [`caches`]. [`family`] is one column family, [`Database`] all of them together with the log and
//! the threads that work in the background.
//!
//! Tools work on the files of a stopped server through [`offline`]. [`check`] verifies them and
//! reads what is sound of damaged ones; [`json`] is the text that rows are exported to and imported
//! from.
//! Commit log and hints are [record logs](mod@log).
//!
//! Rows go to nodes of 0.6, and come from them, in the files of [`original`].
//!
//! Directories of the original are refused as they are ([`foreign`]).
//! What the node keeps about itself is in [`system`].
//! A file counts from the moment the [`manifest`] names it. Names are built in [`files`] alone.
//! A [`snapshot`] keeps the files of one moment, and [`restore`] brings them back.

pub mod answer;
pub mod background;
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
pub mod foreign;
pub mod json;
pub mod keyspace_folders;
pub mod log;
pub mod manifest;
pub mod memtable;
pub mod offline;
pub mod options;
pub mod original;
pub mod restore;
pub mod row;
pub mod rows;
pub mod snapshot;
pub mod sstable;
pub mod system;

pub use database::Database;
pub use options::{CacheOptions, CompactionOptions, CompactionStrategy, FamilyOptions, Options};
