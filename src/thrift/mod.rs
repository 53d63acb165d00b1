//! The Thrift border: binary protocol, framed and unframed connections, the types of the IDL and
//! the dispatch to an implementation of [`Cassandra`]. All knowledge of Thrift ends here.
//!
//! ```text
//!   protocol      messages of a connection: decode -> Cassandra -> reply
//!     foreign     clients of other protocols
//!     message     the four forms in which a message may begin
//!     reply       results, exceptions and errors of the protocol
//!   idl           types and methods, line by line as the interface definition has them
//!     macros, schema    what they expand to
//!     codec, encode, scan, text, dump    the binary protocol itself
//! ```

pub mod codec;
pub mod dump;
pub mod encode;
mod foreign;
pub mod idl;
mod macros;
pub mod message;
mod protocol;
mod reply;
pub mod scan;
pub mod schema;
#[cfg(test)]
mod tests;
mod text;

pub use codec::{Binary, List, Map, Set, Text};
pub use encode::{Each, Encode, Fields};
pub use idl::{Cassandra, METHODS};
pub use protocol::{Clients, Thrift};
pub use reply::{Failure, Method};
