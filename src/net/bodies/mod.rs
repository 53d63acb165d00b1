//! Bodies of messages, by verb.
//!
//! Each file has the layout of its body at its top. Decoding checks everything that the Thrift side
//! would have checked, so that a peer cannot bring into storage, or ask of it, what no client
//! could: keyspaces and column families are ours and of our types, names have a place in the order
//! of their family, keys are not empty. Encoding gives the bytes that a node of 0.6.13 gives, but
//! for the order of the column families of a mutation, which is arbitrary there.
//!
//! In decoded rows the name of a super column stands in each of its cells. What that may take is
//! bounded, since a message could otherwise ask for the square of its length.

mod body;
mod command;
mod error;
mod family;
mod mutation;
mod page;
mod register;
mod reply;
mod streams;
#[cfg(test)]
mod tests;

pub(crate) use body::fields_body;
pub use body::{Body, BodyContext, put_all};
pub use command::{RangeCommand, ReadCommand};
pub use error::{BodyError, EncodeError};
pub use mutation::{
    WriteResponse, decode_binary, decode_hint, decode_mutation, encode_hint, encode_mutation,
};
pub use page::{PageCommand, PageReply, PageRows};
pub use register::{RegisterCall, decode_vote, encode_vote};
pub use reply::{RangeReply, ReadReply};
pub use streams::{
    StreamFile, StreamFinished, StreamRequest, TreeRequest, TreeResponse, decode_bootstrap_token,
    encode_bootstrap_token,
};
