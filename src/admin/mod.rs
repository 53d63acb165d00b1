//! The operators' side of a node: HTTP with JSON on `AdminAddress` and `AdminPort`.
//!
//! `resources` is the table of them, and docs/nodetool.md its list for operators.
//!
//! A selection is `{}` for all column families, `{"keyspace": "K"}` for those of one, or
//! `{"keyspace": "K", "column_families": ["A", "B"]}`. Whatever goes wrong is answered by
//! `{"error": "…"}`. Who may do what is the matter of [`Access`].
//!
//! The server has a thread and a runtime of its own, so that an operator is heard however busy the
//! node is. What may take long runs on further threads, a few at a time.

mod access;
mod connection;
mod context;
mod description;
mod error;
mod health;
mod http;
mod jobs;
mod metrics;
mod operations;
mod pools;
mod recent;
pub mod report;
mod request;
mod resources;
mod ring;
pub mod ring_report;
mod server;
mod status;

pub use access::{Access, Refusal};
pub use context::AdminContext;
pub use recent::Recent;
pub use server::{AdminServer, RunningAdmin};
