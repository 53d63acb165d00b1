//! Whole servers, and the storage core, as their users meet them.
//!
//! * One server: `startup`, `start_script`, `generations`, `login`, `rights`, `tls`, `cql`,
//!   `comparators`, `isolation`, `hostile`, `crash`, `backup`, `format`, `sstable_tools`, `admin`,
//!   `prompt`.
//! * Rings of servers: `cluster`.
//! * Old clients and applications: `clients`, `applications`.
//! * The library: `embedding`, `wire` (the Thrift border without a server behind it), `idl`.
//! * Storage on a simulated disk, beside a model of it: `storage_model`; on directories of the
//!   original: `takeover`.
//! * Layers, by golden scripts: `scripts`.
//! * `server`: starts servers and speaks with them.

#![allow(clippy::unwrap_used, reason = "a failure here is a failure of the test")]
#![allow(clippy::print_stdout, reason = "a run that fails, or is asked to, tells what it did")]
#![allow(clippy::print_stderr, reason = "a failing case says which it is")]

mod admin;
mod applications;
mod backup;
mod clients;
mod cluster;
mod comparators;
mod cql;
mod crash;
mod embedding;
mod format;
mod generations;
mod hostile;
mod idl;
mod isolation;
#[path = "../kit/mod.rs"]
mod kit;
mod login;
mod prompt;
mod rights;
mod scripts;
mod server;
mod simulated_disk;
mod sstable_tools;
mod start_script;
mod startup;
mod storage_model;
mod takeover;
mod tls;
mod wire;
