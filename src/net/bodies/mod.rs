//! Bodies of messages: what stands behind the head, by verb.
//!
//! Each file has the layout of its body at its top. Decoding checks everything that the Thrift side
//! would have checked, so that a peer cannot bring into storage, or ask of it, what no client
//! could: keyspaces and column families are ours and of our types, names have a place in the order
//! of their family, keys are not empty. Encoding gives the bytes that a node of 0.6.13 gives, but
//! for the order of the column families of a mutation, which is arbitrary there.
//!
//! In decoded rows the name of a super column stands in each of its cells. What that may take is
//! bounded, since a message could otherwise ask for the square of its length.

mod binary;
mod body;
mod bounds;
mod error;
mod family;
pub mod hint;
mod key;
mod mutation;
mod page;
mod predicate;
mod range_command;
mod range_reply;
mod read_command;
mod read_reply;
mod slice;
mod streams;
#[cfg(test)]
mod tests;
mod trees;
mod write_response;

pub use binary::decode_binary;
pub use body::{Body, BodyContext};
pub use error::{BodyError, EncodeError, FamilyPart};
pub use mutation::{decode_mutation, encode_mutation};
pub use page::{PageCommand, PageReply, PageRows};
pub use range_command::RangeCommand;
pub use range_reply::RangeReply;
pub use read_command::ReadCommand;
pub use read_reply::ReadReply;
pub use streams::{
    StreamFile, StreamFinished, StreamRequest, decode_bootstrap_token, encode_bootstrap_token,
};
pub use trees::{TreeRequest, TreeResponse};
pub use write_response::WriteResponse;
