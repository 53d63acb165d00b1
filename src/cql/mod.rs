//! CQL: the native protocol, and statements on the same rows that Thrift serves.
//!
//! ```text
//!   protocol      requests of a connection: frames -> session -> execute -> reply
//!     frame       heads, versions, compression
//!     wire        notations of the protocol: strings, values, consistency levels
//!     request     bodies of requests
//!     reply       answers, written straight into the buffer of the connection
//!     error       errors with their codes
//!   session       state of a connection: its turn, login, keyspace
//!   events        clients that have registered for events
//!   execute       statements
//! ```

mod error;
mod events;
mod execute;
mod frame;
mod protocol;
mod reply;
mod request;
mod session;
#[cfg(test)]
mod tests;
mod wire;

pub use error::{Answers, CqlError, ErrorKind, WriteType};
pub use events::{Change, Event, Events, SchemaChange, SchemaTarget, follow_ring};
pub use execute::Executor;
pub use protocol::{Cql, Execute};
pub use reply::{Columns, Reply, Rows};
pub use request::{Batch, BatchKind, BatchStatement, Parameters, Values, Work};
pub use session::Session;
pub use wire::{Few, Level, Malformed, Value};
