//! Everything that can be wrong with a request, and the texts that clients know it by.

use crate::model::comparator::InvalidName;
use crate::ring::TokenError;
use crate::thrift::Failure;

/// Why a request makes no sense. Displays as the text of 0.6, where 0.6 has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// The connection has to log in first.
    #[error("Login is required before any other API calls")]
    LoginRequired,
    /// An empty row key.
    #[error("Key may not be empty")]
    EmptyKey,
    /// A row key whose length, as Java encodes strings, is too great.
    #[error("Encoded key length of {0} is longer than maximum of 65535")]
    KeyTooLong(usize),
    /// No such keyspace is configured.
    #[error("Keyspace {0} does not exist in this schema.")]
    UnknownKeyspace(String),
    /// A write to the keyspace that the node keeps for itself.
    #[error("system keyspace is not user-modifiable")]
    SystemKeyspace,
    /// The name of the column family is empty.
    #[error("non-empty columnfamily is required")]
    EmptyFamily,
    /// No such column family is configured in the keyspace.
    #[error("unconfigured columnfamily {0}")]
    UnknownFamily(String),
    /// The same in `get_key_range`.
    #[error("Column Family {0} is invalid.")]
    InvalidFamily(String),
    /// A path into a standard column family names a super column.
    #[error("supercolumn parameter is invalid for standard CF {0}")]
    SuperColumnInStandard(String),
    /// A path into a standard column family names no column.
    #[error("column parameter is not optional for standard CF {0}")]
    NoColumn(String),
    /// A path into a super column family names no super column.
    #[error("supercolumn parameter is not optional for super CF {0}")]
    NoSuperColumn(String),
    /// An insertion into a super column names no column.
    #[error("column parameter is not optional for super CF {0}")]
    NoSubcolumn(String),
    /// A column parent in a standard column family names a super column.
    #[error("columnfamily alone is required for standard CF {0}")]
    ParentInStandard(String),
    /// A removal from a standard column family names a super column.
    #[error("supercolumn may not be specified for standard CF {0}")]
    RemovalInStandard(String),
    /// A removal from a super column family names a column but not where it is.
    #[error(
        "A column cannot be specified without specifying a super column for removal on super CF {0}"
    )]
    RemovalWithoutSuperColumn(String),
    /// The name of a super column is too long.
    #[error("supercolumn name length must not be greater than 65535")]
    SuperColumnNameTooLong,
    /// The name of a super column is empty.
    #[error("supercolumn name must not be empty")]
    EmptySuperColumnName,
    /// Columns of a super column are meant, in a family that has none.
    #[error("supercolumn specified to ColumnFamily {0} containing normal columns")]
    NotSuper(String),
    /// A name is too long.
    #[error("column name length must not be greater than 65535")]
    NameTooLong,
    /// A name is empty.
    #[error("column name must not be empty")]
    EmptyName,
    /// The comparator does not accept a name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A predicate that says nothing.
    #[error("predicate column_names and slice_range may not both be null")]
    EmptyPredicate,
    /// A predicate that says two things.
    #[error("predicate column_names and slice_range may not both be present")]
    DoublePredicate,
    /// A slice of less than nothing.
    #[error("get_slice requires non-negative count")]
    NegativeCount,
    /// A slice that ends before it begins.
    #[error("range finish must come after start in the order of traversal")]
    FinishBeforeStart,
    /// A range of keys with one end.
    #[error("start key and end key must either both be non-null, or both be null")]
    OneKey,
    /// A range of tokens with one end.
    #[error("start token and end token must either both be non-null, or both be null")]
    OneToken,
    /// A range of neither keys nor tokens, or of both.
    #[error(
        "exactly one of {{start key, end key}} or {{start token, end token}} must be specified"
    )]
    KeysOrTokens,
    /// A range of keys that is none, under `RandomPartitioner`.
    #[error(
        "start key's md5 sorts after end key's md5.  this is not allowed; you probably should not \
         specify end key at all, under RandomPartitioner"
    )]
    StartAfterEndByHash,
    /// A range of keys that is none, under a partitioner that preserves order.
    #[error("start key must sort before (or equal to) finish key in your partitioner!")]
    StartAfterEnd,
    /// A range of no rows.
    #[error("maxRows must be positive")]
    NoRows,
    /// The same in `get_range_slice` of 0.5.
    #[error("row_count must be positive")]
    NoRowCount,
    /// The same in `get_key_range`.
    #[error("maxResults must be positive")]
    NoResults,
    /// A range of keys where keys have no order.
    #[error("range queries may only be performed against an order-preserving partitioner")]
    OrderRequired,
    /// A text that is no token. The original fails with an internal error.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// An insertion of nothing.
    #[error("ColumnOrSuperColumn must have one or both of Column or SuperColumn")]
    EmptyInsertion,
    /// A column, and beside it a super column without columns. The original fails with an internal
    /// error.
    #[error("ColumnOrSuperColumn may have either a Column or a SuperColumn, but not both")]
    DoubleInsertion,
    /// A mutation that does nothing.
    #[error("Mutation must have one ColumnOrSuperColumn or one Deletion")]
    EmptyMutation,
    /// A mutation that inserts and deletes.
    #[error("Mutation may have either a ColumnOrSuperColumn or a Deletion, but not both")]
    DoubleMutation,
    /// A deletion with a predicate that says nothing.
    #[error("A SlicePredicate must be given a list of Columns, a SliceRange, or both")]
    EmptyDeletion,
    /// A deletion of a range of columns.
    #[error("Deletion does not yet support SliceRange predicates.")]
    RangeDeletion,
    /// A deletion of a super column in a standard column family.
    #[error(
        "deletion of super_column is not possible on a standard ColumnFamily \
         (KeySpace={keyspace} ColumnFamily={family} Deletion={deletion})"
    )]
    SuperColumnDeletion {
        /// The keyspace.
        keyspace: String,
        /// The column family.
        family: String,
        /// The deletion, printed.
        deletion: String,
    },
    /// A read that waits for nobody.
    #[error("Consistency level zero may not be applied to read operations")]
    ReadAtZero,
    /// A read from a node that may hold nothing.
    #[error("Consistency level any may not be applied to read operations")]
    ReadAtAny,
    /// `describe_ring` of a keyspace that has no replicas.
    #[error("There is no ring for the keyspace: {0}")]
    NoRing(String),
    /// `describe_splits` into parts of no keys. The original closes the connection.
    #[error("keys_per_split must not be zero")]
    ZeroKeysPerSplit,
}

impl From<InvalidRequest> for Failure {
    fn from(invalid: InvalidRequest) -> Self {
        Self::InvalidRequest(invalid.to_string())
    }
}
