//! The Thrift border: binary protocol, framed and unframed connections, the types and methods of
//! the interface definition, and their translation to the model and the service. No other layer
//! knows Thrift.
//!
//! ```text
//!   calls         the methods: checks of arguments, calls of the service, answers
//!   protocol      messages of a connection: decode -> Cassandra -> reply
//!     message     the first bytes of a connection and of a message; clients of other protocols
//!     reply       results, exceptions and errors of the protocol
//!   remote        calls as a client makes them
//!   idl           types and methods, in the order of the interface definition
//!     macros, schema    their expansion
//!     codec, encode, scan, dump    the binary protocol itself
//! ```

mod calls;
pub mod codec;
pub mod dump;
pub mod encode;
pub mod idl;
mod macros;
mod message;
mod protocol;
pub mod remote;
mod reply;
mod scan;
pub mod schema;
#[cfg(test)]
mod tests;

pub use calls::Calls;
pub use codec::{Binary, List, Map, Set, Text};
pub use encode::{Each, Encode};
pub use idl::{Cassandra, METHODS};
pub use protocol::{Clients, Thrift};
pub use reply::Method;
