//! The operators' side of a node: HTTP with JSON on `AdminAddress` and `AdminPort`.
//!
//! `resources` is the table of all resources; docs/nodetool.md lists them for operators.
//!
//! A selection is `{}` for all column families, `{"keyspace": "K"}` for those of one, or
//! `{"keyspace": "K", "column_families": ["A", "B"]}`. Errors are answered by
//! `{"error": "…"}`. `access` decides which callers may change anything, or see
//! rows.
//!
//! The server has a thread and a runtime of its own, so it answers however busy the node is.
//! Long work runs on further threads, a few at a time.

mod access;
mod console;
mod context;
mod error;
mod families;
mod http;
mod jobs;
mod measures;
mod metrics;
pub mod report;
mod request;
mod resources;
mod ring;
pub mod ring_report;
mod rows;
mod server;
mod settings;
mod status;
mod top_rows;

pub use context::AdminContext;
pub use families::Recent;
pub use resources::looks;
pub use server::{AdminServer, RunningAdmin};
