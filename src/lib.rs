//! Alexandra: one program that replaces an Apache Cassandra 0.4-0.6 server.
//!
//! The folders are the layers. A request passes through them from left to right, its answer back:
//!
//! ```text
//!    commands --> assembly --> node     start, and build the layers below
//!
//!      client                                                                  operator
//!        | Thrift                                                                | HTTP
//!    +---v----+   +---------+   +-------------+   +---------+   +---------+   +---v---+
//!    | thrift |-->| service |-->| coordinator |-->| replica |-->| storage |<--| admin |
//!    +--------+   +---------+   +-------------+   +---------+   +---------+   +-------+
//!        | server                       connections, limits and drain, for any protocol
//!
//!    repair                             moves data between nodes: changes of the ring, repair
//!    ring, gossip, net                  owners of tokens, live members, messages between nodes
//!    config, model, base                shared by the layers above
//! ```
//!
//! - [`commands`]: subcommands of the program
//! - [`assembly`]: a node with its front ends
//! - [`client`]: the other side of Thrift, for commands
//! - [`node`]: builds a node from its parts, and takes it down in order
//! - [`admin`]: JSON and metrics for operators, over HTTP
//! - [`server`]: client connections: listeners, workers, limits, drain; knows no protocol
//! - [`cql`]: the native protocol, and statements on the same rows
//! - [`thrift`]: the protocol, the interface definition, and one function for each call:
//!   checks, translates, calls the service
//! - [`service`]: operations for every front end: names, login, rows a page at a time, errors
//! - [`coordinator`]: replicas of a request, and the answers that its consistency level needs
//! - [`ring`]: tokens, partitioners, placement of replicas
//! - [`net`]: frames, messages and connections between nodes
//! - [`gossip`]: members of the cluster, their states and tokens, failure detection
//! - [`repair`]: changes of the ring, and repair: ranges of data move between nodes
//! - [`replica`]: work of a node as a replica: applies a mutation, reads a row, scans a range
//! - [`schema`]: keyspaces, tables and types made over CQL, and their changes
//! - [`storage`]: commit log, memtables, SSTables, compaction
//! - [`config`]: `storage-conf.xml` as typed settings
//! - [`model`]: rows, columns, comparators, slices, mutations: the vocabulary of all layers but
//!   `server`
//! - [`base`]: clock, file system, locks, memory budgets, byte readers: knows no database

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
pub mod client;
pub mod commands;
pub mod config;
pub mod coordinator;
pub mod cql;
pub mod gossip;
pub mod model;
pub mod net;
pub mod node;
pub mod repair;
pub mod replica;
pub mod ring;
pub mod schema;
pub mod server;
pub mod service;
pub mod storage;
pub mod thrift;
