//! Alexandra: one program that takes the place of an Apache Cassandra 0.4-0.6 server.
//!
//! The folders are the layers. A request passes through them from left to right, its answer back:
//!
//! ```text
//!    commands --> assembly --> node     start, and put together what is below
//!
//!      client                                                                  operator
//!        | Thrift                                                                | HTTP
//!    +---v----+   +---------+   +-------------+   +---------+   +---------+   +---v---+
//!    | thrift |-->| service |-->| coordinator |-->| replica |-->| storage |<--| admin |
//!    +--------+   +---------+   +-------------+   +---------+   +---------+   +-------+
//!        | server                       connections, limits and drain, for any protocol
//!
//!    repair                             moves data between nodes: changes of the ring, repair
//!    ring, gossip, net                  which nodes there are, which are alive, messages to them
//!    config, model, base                what the layers above share
//! ```
//!
//! - [`commands`]: the subcommands of the binary
//! - [`assembly`]: a node with its front ends
//! - [`node`]: builds a node from its parts, and takes it down in order
//! - [`admin`]: what operators see and steer, over HTTP
//! - [`server`]: connections of clients: listeners, workers, limits, drain; knows no protocol
//! - [`thrift`]: the protocol, the interface definition, and one function for each method:
//!   checks, translates, calls the service
//! - [`service`]: operations for every front end: names, login, rows a page at a time, errors
//! - [`coordinator`]: which replicas a request needs, and how many of them at its consistency level
//! - [`ring`]: tokens, partitioners, placement of replicas
//! - [`net`]: frames, messages and connections between nodes
//! - [`gossip`]: who is in the cluster, who seems alive, and what nodes say of themselves
//! - [`repair`]: changes of the ring, and repair: ranges of data move between nodes
//! - [`replica`]: what a node does as a replica: applies a mutation, reads a row, scans a range
//! - [`storage`]: commit log, memtables, SSTables, compaction
//! - [`config`]: `storage-conf.xml` as typed settings
//! - [`model`]: rows, columns, comparators, slices, mutations: the vocabulary of all layers but
//!   `server`
//! - [`base`]: what knows nothing of a database: clock, file system, events, byte readers

#![cfg_attr(not(test), deny(clippy::disallowed_types))]

// The kit below `tests/` names the library as the test binaries do.
#[cfg(test)]
extern crate self as alexandra;

#[cfg(test)]
#[path = "../tests/kit/mod.rs"]
mod kit;

pub mod admin;
pub mod assembly;
pub mod base;
pub mod commands;
pub mod config;
pub mod coordinator;
pub mod gossip;
pub mod model;
pub mod net;
pub mod node;
pub mod repair;
pub mod replica;
pub mod ring;
pub mod server;
pub mod service;
pub mod storage;
pub mod thrift;
