//! The Thrift border: binary protocol, framed and unframed connections, the types of the IDL and
//! the methods, which are translated to the model and the service. All knowledge of Thrift ends
//! here.
//!
//! ```text
//!   calls         the methods: checks of arguments, calls of the service, answers
//!   protocol      messages of a connection: decode -> Cassandra -> reply
//!     foreign     clients of other protocols
//!     message     the four forms in which a message may begin
//!     reply       results, exceptions and errors of the protocol
//!   idl           types and methods, line by line as the interface definition has them
//!     macros, schema    what they expand to
//!     codec, encode, scan, text, dump    the binary protocol itself
//! ```

mod calls;
pub mod codec;
pub mod dump;
pub mod encode;
mod foreign;
pub mod idl;
mod macros;
mod message;
mod protocol;
mod reply;
mod scan;
pub mod schema;
#[cfg(test)]
mod tests;
mod text;

pub use calls::Calls;
pub use codec::{Binary, List, Map, Set, Text};
pub use encode::{Each, Encode, Fields};
pub use idl::{Cassandra, METHODS};
pub use protocol::{Clients, Thrift};
pub use reply::Method;
