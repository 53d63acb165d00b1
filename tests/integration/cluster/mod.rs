//! Several nodes as processes of their own, on loopback addresses of their own: what clients are
//! promised while nodes are killed, paused, started again, and disagree.

mod anti_entropy;
mod cql_events;
mod cql_tables;
mod damage;
mod dev_cluster;
mod disturbances;
mod failures;
mod forgeries;
mod generations;
mod interrupted;
pub(crate) mod nodes;
mod operators;
mod reloads;
mod repair;
mod ring;
mod scans;
mod topology;
mod word_count;
