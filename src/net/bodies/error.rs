//! Errors of bodies.

use crate::base::bytes::Malformed;
use crate::base::java::TooLong;
use crate::model::mutation::DecodeError;
use crate::model::original_mutation::clipped;
use crate::model::schema::ColumnFamilySchema;
use crate::net::extensions::CELLS;
use crate::ring::TokenError;
use std::net::IpAddr;

/// Why the body of a message from a peer is not taken. None of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The bytes do not have the form of this body.
    #[error("byte {0} does not fit the format")]
    Malformed(usize),
    /// A row, a write, or the name of a column family or column.
    #[error(transparent)]
    Row(DecodeError),
    /// The answer is about another column family than the request.
    #[error("the answer is about column family {theirs}, but {family} was asked for")]
    OtherFamily {
        /// Keyspace and name of the column family that was asked for.
        family: String,
        /// The name in the answer.
        theirs: String,
    },
    /// No node writes to the system keyspace of another.
    #[error("the keyspace {0} is not written to from outside")]
    SystemKeyspace(String),
    /// The first column of a slice comes after the last.
    #[error("the slice of column family {family} ends before it begins")]
    EmptySlice {
        /// Keyspace and name of the column family.
        family: String,
    },
    /// The rows that are asked for do not stand together in the order of their tokens.
    #[error("the range of tokens ends before it begins")]
    RangeWraps,
    /// A token is none of our partitioner: the peer must have another.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl From<Malformed> for BodyError {
    fn from(Malformed(at): Malformed) -> Self {
        Self::Malformed(at)
    }
}

impl From<DecodeError> for BodyError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Malformed(at) => Self::Malformed(at),
            other => Self::Row(other),
        }
    }
}

impl BodyError {
    pub(super) fn other_family(family: &ColumnFamilySchema, theirs: &str) -> Self {
        Self::OtherFamily { family: family.to_string(), theirs: clipped(theirs) }
    }
}

/// Why something cannot be said to a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A key of many characters beyond the basic plane, which take more bytes than in UTF-8.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// A key that is not text, a value that expires, or a deletion that only CQL has, for a node
    /// that does not know them.
    #[error(
        "the node {0} does not announce {CELLS}: it cannot have row keys that are not text, values \
         that expire, nor deletions of ranges and collections. Replace it by a node that does"
    )]
    LaterCells(IpAddr),
    /// The range of tokens has no form on the wire: it is empty, or ends before a token.
    #[error("the range of rows cannot be sent")]
    Range,
}
