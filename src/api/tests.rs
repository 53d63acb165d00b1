//! The API over a store in memory.

mod cluster;
mod connections;
mod fixture;
mod refusals;
mod rows;
