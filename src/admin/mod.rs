//! The operators' side of a node: HTTP with JSON on `AdminAddress` and `AdminPort`.
//!
//! ```text
//!   GET  /api/v1/info                       the node, its memory
//!   GET  /api/v1/cfstats                    each column family; ?keyspace=&column_family=
//!   GET  /api/v1/cfhistograms               how long operations took; the same
//!   GET  /api/v1/pools                      work that is done, waits or was done, by kind
//!   GET  /api/v1/compactions                those that are running, and what there was
//!   GET  /api/v1/compaction-thresholds      of each column family; the same
//!   PUT  /api/v1/compaction-thresholds      {"min": 4, "max": 32} and a selection
//!   PUT  /api/v1/cache-capacities           {"key_cache": 1, "row_cache": 0} and a column family
//!   POST /api/v1/flush                      a selection
//!   POST /api/v1/compact                    a selection
//!   GET  /api/v1/snapshots                  what there is; ?keyspace=&name=
//!   POST /api/v1/snapshots                  {"tag": "nightly"} and a keyspace, or all
//!   DELETE /api/v1/snapshots                as GET, and no body
//!   GET  /api/v1/status                     all nodes at a glance
//!   GET  /api/v1/cluster                    what they agree on, and who does not
//!   POST /api/v1/drain                      leaves the ring and writes everything to disk
//!   GET  /api/v1/ring                       the nodes, as this one knows them
//!   POST /api/v1/ring/allow-return          {"address": "10.0.0.2"}: a removed node may come back
//!   GET  /api/v1/gossip                     what they say of themselves
//!   GET  /api/v1/failure-detector           when a silent node counts as dead
//!   PUT  /api/v1/failure-detector           {"phi_convict_threshold": 8}, until the next start
//!   GET  /api/v1/messages                   what was sent to them, received and dropped
//!   GET  /api/v1/hints                      what is kept for those that are down
//!   POST /api/v1/hints/deliver              {"address": "10.0.0.2"}, soon
//!   POST /api/v1/rack-file                  reads it again
//!   GET  /metrics                           for Prometheus
//! ```
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
mod jobs;
mod metrics;
mod operations;
mod pools;
mod recent;
pub mod report;
mod request;
mod ring;
pub mod ring_report;
mod routes;
mod server;
mod status;

pub use access::{Access, Refusal};
pub use context::{AdminContext, AdminOptions};
pub use server::{AdminServer, RunningAdmin};
