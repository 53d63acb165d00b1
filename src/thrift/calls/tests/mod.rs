//! Calls of a node whose store is in memory.

mod cluster;
mod connections;
mod fixture;
mod refusals;
mod rows;
