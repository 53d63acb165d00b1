//! Alexandra: one program that takes the place of an Apache Cassandra 0.4-0.6 server.
//!
//! The folders are the layers, in the order in which a request passes through them:
//!
//! ```text
//!      client
//!        | Thrift
//!    +---v----+   +-----+   +-------------+   +---------+   +---------+
//!    |  wire  |-->| api |-->| coordinator |-->| replica |-->| storage |
//!    +--------+   +-----+   +------+------+   +---------+   +---------+
//!                                  | asks
//!                               +--v---+
//!                               | ring |   tokens, partitioners, placement
//!                               +------+
//! ```
//!
//! [`model`] is the vocabulary that all of them share, [`config`] reads `storage-conf.xml`,
//! [`base`] holds what knows nothing of a database: clock, file system, events.

pub mod api;
pub mod base;
pub mod commands;
pub mod config;
pub mod coordinator;
pub mod model;
pub mod node;
pub mod replica;
pub mod ring;
pub mod storage;
pub mod wire;
