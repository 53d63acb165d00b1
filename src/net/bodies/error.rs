//! Errors of bodies.

use crate::base::bytes::Malformed;
use crate::base::context::TooLarge;
use crate::base::java::TooLong;
use crate::model::original::ColumnError;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::TokenError;

/// Why the body of a message from a peer is not taken. None of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The bytes do not have the form of this body.
    #[error("byte {0} does not fit the format")]
    Malformed(usize),
    /// The peer is configured otherwise than this node.
    #[error("column family {keyspace}.{family} is not configured here")]
    UnknownFamily {
        /// The keyspace that the message names.
        keyspace: String,
        /// The column family that the message names.
        family: String,
    },
    /// The peer is configured otherwise than this node.
    #[error("column family {family} has {part} {ours} here, and {theirs} at the peer")]
    OtherType {
        /// Keyspace and name of the column family.
        family: String,
        /// The difference: column type or a comparator.
        part: &'static str,
        /// As it is configured here.
        ours: String,
        /// As the peer says.
        theirs: String,
    },
    /// The answer is about another column family than the request.
    #[error("the answer is about column family {theirs}, but {family} was asked for")]
    OtherFamily {
        /// Keyspace and name of the column family that was asked for.
        family: String,
        /// The name in the answer.
        theirs: String,
    },
    /// No column can have this name, or none of this kind can stand in the column family.
    #[error("column family {family} cannot hold a column that is named {name}")]
    Name {
        /// Keyspace and name of the column family.
        family: String,
        /// The name as its comparator shows it.
        name: String,
    },
    /// Rows have keys.
    #[error("the row key is empty")]
    EmptyKey,
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
    /// Super columns with long names and very many columns.
    #[error("the columns would take more than {0} bytes of memory")]
    TooLarge(usize),
    /// The memory that all requests share is used up.
    #[error(transparent)]
    NoMemory(#[from] TooLarge),
}

impl From<Malformed> for BodyError {
    fn from(Malformed(at): Malformed) -> Self {
        Self::Malformed(at)
    }
}

/// Longest text of a peer that an error repeats, in characters: errors are logged.
const MOST_CHARACTERS: usize = 100;

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl BodyError {
    pub(super) fn unknown_family(keyspace: &str, family: &str) -> Self {
        Self::UnknownFamily { keyspace: clipped(keyspace), family: clipped(family) }
    }

    pub(super) fn other_type(
        family: &ColumnFamilySchema,
        part: &'static str,
        ours: String,
        theirs: &str,
    ) -> Self {
        Self::OtherType { family: family.to_string(), part, ours, theirs: clipped(theirs) }
    }

    pub(super) fn other_family(family: &ColumnFamilySchema, theirs: &str) -> Self {
        Self::OtherFamily { family: family.to_string(), theirs: clipped(theirs) }
    }

    /// The error of the columns of a row.
    pub(super) fn columns(family: &ColumnFamilySchema, error: ColumnError) -> Self {
        match error {
            ColumnError::Truncated { at, .. } | ColumnError::Malformed(at) => Self::Malformed(at),
            ColumnError::Name { within, name } => Self::name(family, within.as_deref(), &name),
        }
    }

    /// A name of columns, or of super columns if `super_name` is none, that cannot be.
    pub(super) fn name(
        family: &ColumnFamilySchema,
        super_name: Option<&[u8]>,
        name: &[u8],
    ) -> Self {
        let columns = super_name.and_then(|_| family.subcolumn_comparator());
        let name = columns.unwrap_or(family.comparator()).render(name);
        Self::Name { family: family.to_string(), name: clipped(&name) }
    }
}

/// Why something cannot be said to a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A key of many characters beyond the basic plane, which take more bytes than in UTF-8.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// A key of bytes, which came from a client of a later version than 0.6.
    #[error("the row key is not UTF-8, and other nodes know no other keys")]
    KeyNotText,
    /// The range of tokens has no form on the wire: it is empty, or ends before a token.
    #[error("the range of rows cannot be sent")]
    Range,
}
