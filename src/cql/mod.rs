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
//!     parse, ast  their text, and its meaning without any table
//!     prepared    plans: statements whose names are looked up
//!     tables, system, definition    where names lead
//!     terms, functions, types, collections    values that a statement gives
//!     restrictions, relations, windows        WHERE: partitions, slices of them, rows to filter
//!     schema                                  changes of the schema
//!     select, output, selection, rows, paging  reads
//!     modify, cells, batch                    writes
//! ```

mod ast;
mod batch;
mod cells;
mod collections;
mod conditional;
mod definition;
mod error;
mod events;
mod execute;
mod frame;
mod functions;
mod modify;
mod output;
mod paging;
mod parse;
mod prepared;
mod protocol;
mod refusals;
mod relations;
mod reply;
mod request;
mod restrictions;
mod rows;
mod schema;
mod select;
mod selection;
mod session;
mod system;
mod tables;
mod terms;
#[cfg(test)]
mod tests;
mod types;
mod windows;
mod wire;

pub use error::{Answers, CqlError, ErrorKind, WriteType};
pub use events::{Change, Event, Events, SchemaChange, SchemaTarget, follow_ring, follow_schema};
pub use execute::Executor;
pub use protocol::{Cql, Execute};
pub use reply::{Columns, Reply, Rows};
pub use request::{Batch, BatchKind, BatchStatement, Parameters, Values, Work};
pub use session::Session;
pub use wire::{Few, Level, Malformed, Value};
