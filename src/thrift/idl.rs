//! The interface definition, line by line as `cassandra.thrift` has it: types, and the methods of
//! 0.4, 0.5 and 0.6 together.

use super::codec::{Binary, List, Map, Set, Text};
use super::macros::{thrift_enum, thrift_exception, thrift_service, thrift_struct};
use super::schema::Struct;
use crate::config::settings::Release;

/// API version that 0.6.4 to 0.6.13 report.
pub const VERSION: &str = "2.2.0";

/// Every struct of the IDL, to compare with it.
pub const STRUCTS: &[Struct] = &[
    Column::SCHEMA,
    SuperColumn::SCHEMA,
    ColumnOrSuperColumn::SCHEMA,
    ColumnParent::SCHEMA,
    ColumnPath::SCHEMA,
    SliceRange::SCHEMA,
    SlicePredicate::SCHEMA,
    KeyRange::SCHEMA,
    KeySlice::SCHEMA,
    Deletion::SCHEMA,
    Mutation::SCHEMA,
    TokenRange::SCHEMA,
    AuthenticationRequest::SCHEMA,
];

thrift_enum! {
    /// Number of replicas that must take part before a call is answered.
    pub enum ConsistencyLevel {
        /// No waiting; writes only.
        Zero = "ZERO" 0,
        /// One replica.
        One = "ONE" 1,
        /// More than half of the replicas.
        Quorum = "QUORUM" 2,
        /// A quorum in the coordinator's data centre.
        DcQuorum = "DCQUORUM" 3,
        /// A quorum in each data centre.
        DcQuorumSync = "DCQUORUMSYNC" 4,
        /// Every replica.
        All = "ALL" 5,
        /// One node, be it only to hold a hint; writes only.
        Any = "ANY" 6,
    }
}

impl ConsistencyLevel {
    /// The level that a client of a generation means by a number: 0.4 meant ALL by what is DCQUORUM
    /// since, and had no greater number. Those of 0.5 count there as well, since a file of 0.5 may
    /// look like one of 0.4, and the write of a client must not fail for that.
    pub fn meant_by(number: i32, version: Release) -> Option<Self> {
        match (version, Self::from_number(number)?) {
            (Release::V04, Self::DcQuorum) => Some(Self::All),
            (Release::V04 | Release::V05, Self::Any) => None,
            (_, level) => Some(level),
        }
    }
}

thrift_exception! {
    /// The exceptions that methods declare.
    pub enum Exception {
        /// The one column that was asked for does not exist.
        NotFound: NotFoundException {},
        /// The request makes no sense, and why.
        InvalidRequest: InvalidRequestException { 1: required why: string },
        /// Too few replicas are alive.
        Unavailable: UnavailableException {},
        /// Too few replicas answered in time.
        TimedOut: TimedOutException {},
        /// The login was refused, and why.
        Authentication: AuthenticationException { 1: required why: string },
        /// The caller may not do this, and why.
        Authorization: AuthorizationException { 1: required why: string },
    }
}

thrift_struct! {
    /// Name, value and timestamp.
    pub struct Column<'a> {
        /// Unique in its row or super column.
        1: required name: Binary<'a>,
        /// May be empty.
        2: required value: Binary<'a>,
        /// Decides which of two writes stays.
        3: required timestamp: i64,
    }
}

thrift_struct! {
    /// A named group of columns.
    pub struct SuperColumn<'a> {
        /// Unique in its row.
        1: required name: Binary<'a>,
        /// The members.
        2: required columns: List<Column<'a>>,
    }
}

thrift_struct! {
    /// One of the two is set.
    pub struct ColumnOrSuperColumn<'a> {
        /// In a standard column family, or a member of a super column.
        1: optional column: Column<'a>,
        /// In a super column family.
        2: optional super_column: SuperColumn<'a>,
    }
}

impl<'a> From<Column<'a>> for ColumnOrSuperColumn<'a> {
    fn from(column: Column<'a>) -> Self {
        Self { column: Some(column), super_column: None }
    }
}

impl<'a> From<SuperColumn<'a>> for ColumnOrSuperColumn<'a> {
    fn from(super_column: SuperColumn<'a>) -> Self {
        Self { column: None, super_column: Some(super_column) }
    }
}

thrift_struct! {
    /// Parent of a group of columns: a row of a column family, or a super column in it.
    pub struct ColumnParent<'a> {
        /// By name.
        3: required column_family: Text<'a>,
        /// In a super column family: the super column whose members are meant.
        4: optional super_column: Binary<'a>,
    }
}

thrift_struct! {
    /// The way to a single column, super column or row.
    pub struct ColumnPath<'a> {
        /// By name.
        3: required column_family: Text<'a>,
        /// In a super column family.
        4: optional super_column: Binary<'a>,
        /// The column itself.
        5: optional column: Binary<'a>,
    }
}

thrift_struct! {
    /// Neighbouring columns, in the order of the comparator.
    pub struct SliceRange<'a> {
        /// First name; empty: from the end of the row at which the slice begins.
        1: required start: Binary<'a>,
        /// Last name, inclusive; empty: up to the other end.
        2: required finish: Binary<'a>,
        /// From great to small.
        3: required reversed: bool = false,
        /// Most columns.
        4: required count: i32 = 100,
    }
}

thrift_struct! {
    /// Which columns: by name or by range. One of the two is set.
    pub struct SlicePredicate<'a> {
        /// Names of columns.
        1: optional column_names: List<Binary<'a>>,
        /// Columns between two names.
        2: optional slice_range: SliceRange<'a>,
    }
}

thrift_struct! {
    /// Which rows: between two keys (both inclusive) or two tokens (the first exclusive).
    pub struct KeyRange<'a> {
        /// First key.
        1: optional start_key: Text<'a>,
        /// Last key.
        2: optional end_key: Text<'a>,
        /// The token after which the range begins.
        3: optional start_token: Text<'a>,
        /// The token with which it ends.
        4: optional end_token: Text<'a>,
        /// Most rows.
        5: required count: i32 = 100,
    }
}

thrift_struct! {
    /// A row of a range.
    pub struct KeySlice<'a> {
        /// Row key.
        1: required key: Text<'a>,
        /// The selected columns; may be empty.
        2: required columns: List<ColumnOrSuperColumn<'a>>,
    }
}

thrift_struct! {
    /// Deletes a row, a super column or what a predicate names.
    pub struct Deletion<'a> {
        /// Older writes than this one are covered.
        1: required timestamp: i64,
        /// The super column, or the one whose members the predicate names.
        2: optional super_column: Binary<'a>,
        /// The columns; only by name.
        3: optional predicate: SlicePredicate<'a>,
    }
}

thrift_struct! {
    /// A write of a batch. One of the two is set.
    pub struct Mutation<'a> {
        /// An insertion.
        1: optional column_or_supercolumn: ColumnOrSuperColumn<'a>,
        /// A deletion.
        2: optional deletion: Box<Deletion<'a>>,
    }
}

thrift_struct! {
    /// A part of the ring and its replicas.
    pub struct TokenRange<'a> {
        /// Exclusive.
        1: required start_token: Text<'a>,
        /// Inclusive.
        2: required end_token: Text<'a>,
        /// Addresses of the replicas.
        3: required endpoints: List<Text<'a>>,
    }
}

thrift_struct! {
    /// Credentials of a login.
    pub struct AuthenticationRequest<'a> {
        /// Whatever the authenticator asks for: `username`, `password`.
        1: required credentials: Map<Text<'a>, Text<'a>>,
    }
}

thrift_service! {
    /// Answers the calls. Arguments borrow from the request, so that answers and writes copy only
    /// what they keep. A panic is answered as an internal error of that call.
    ///
    /// The connections of a worker share its thread: a method that would block, or compute for
    /// long, does so elsewhere and awaits the outcome.
    pub trait Cassandra {
        /// Binds the connection to a user.
        [V06 V06] login(LoginArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required auth_request: AuthenticationRequest<'a>,
        }) -> (), throws (1: Authentication, 2: Authorization);

        /// One column or super column.
        [V04 V06] get(GetArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required key: Text<'a>,
            3: required column_path: ColumnPath<'a>,
            4: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> ColumnOrSuperColumn<'static>,
            throws (1: InvalidRequest, 2: NotFound, 3: Unavailable, 4: TimedOut);

        /// Columns of one row.
        [V04 V06] get_slice(GetSliceArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required key: Text<'a>,
            3: required column_parent: ColumnParent<'a>,
            4: required predicate: SlicePredicate<'a>,
            5: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> List<ColumnOrSuperColumn<'static>>,
            throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// One column of several rows. An absent one is an empty `ColumnOrSuperColumn`.
        [V04 V06] multiget(MultigetArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required keys: List<Text<'a>>,
            3: required column_path: ColumnPath<'a>,
            4: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> Map<Text<'static>, ColumnOrSuperColumn<'static>>,
            throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Columns of several rows.
        [V04 V06] multiget_slice(MultigetSliceArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required keys: List<Text<'a>>,
            3: required column_parent: ColumnParent<'a>,
            4: required predicate: SlicePredicate<'a>,
            5: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> Map<Text<'static>, List<ColumnOrSuperColumn<'static>>>,
            throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Number of columns of a row or super column.
        [V04 V06] get_count(GetCountArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required key: Text<'a>,
            3: required column_parent: ColumnParent<'a>,
            4: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> i32, throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Row keys in their order; gone in 0.6, and answered all the same.
        [V04 V05] get_key_range(GetKeyRangeArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required column_family: Text<'a>,
            3: required start: Text<'a> = "",
            4: required finish: Text<'a> = "",
            5: required count: i32 = 100,
            6: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> List<Text<'static>>, throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Columns of neighbouring rows, between two keys.
        [V05 V06] get_range_slice(GetRangeSliceArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required column_parent: ColumnParent<'a>,
            3: required predicate: SlicePredicate<'a>,
            4: required start_key: Text<'a> = "",
            5: required finish_key: Text<'a> = "",
            6: required row_count: i32 = 100,
            7: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> List<KeySlice<'static>>, throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Columns of neighbouring rows, between two keys or two tokens.
        [V06 V06] get_range_slices(GetRangeSlicesArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required column_parent: ColumnParent<'a>,
            3: required predicate: SlicePredicate<'a>,
            4: required range: KeyRange<'a>,
            5: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> List<KeySlice<'static>>, throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Writes one column.
        [V04 V06] insert(InsertArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required key: Text<'a>,
            3: required column_path: ColumnPath<'a>,
            4: required value: Binary<'a>,
            5: required timestamp: i64,
            6: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> (), throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Writes columns of one row, by column family.
        [V04 V06] batch_insert(BatchInsertArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required key: Text<'a>,
            3: required cfmap: Map<Text<'a>, List<ColumnOrSuperColumn<'a>>>,
            4: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> (), throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Deletes a column, a super column or a row.
        [V04 V06] remove(RemoveArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required key: Text<'a>,
            3: required column_path: ColumnPath<'a>,
            4: required timestamp: i64,
            5: default consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> (), throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// Writes and deletes by row key and column family.
        [V06 V06] batch_mutate(BatchMutateArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required mutation_map: Map<Text<'a>, Map<Text<'a>, List<Mutation<'a>>>>,
            3: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> (), throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// A property of the node or the cluster.
        [V04 V06] get_string_property(GetStringPropertyArgs<'a> {
            1: required property: Text<'a>,
        }) -> Text<'static>;

        /// A property that is a list.
        [V04 V06] get_string_list_property(GetStringListPropertyArgs<'a> {
            1: required property: Text<'a>,
        }) -> List<Text<'static>>;

        /// Names of the keyspaces, `system` among them.
        [V06 V06] describe_keyspaces(DescribeKeyspacesArgs<'a> {}) -> Set<Text<'static>>;

        /// Name of the cluster.
        [V06 V06] describe_cluster_name(DescribeClusterNameArgs<'a> {}) -> Text<'static>;

        /// Version of this API.
        [V06 V06] describe_version(DescribeVersionArgs<'a> {}) -> Text<'static>;

        /// The ring as seen by a keyspace.
        [V06 V06] describe_ring(DescribeRingArgs<'a> {
            1: required keyspace: Text<'a>,
        }) -> List<TokenRange<'static>>, throws (1: InvalidRequest);

        /// Class name of the partitioner.
        [V06 V06] describe_partitioner(DescribePartitionerArgs<'a> {}) -> Text<'static>;

        /// The column families of a keyspace and their properties.
        [V04 V06] describe_keyspace(DescribeKeyspaceArgs<'a> {
            1: required keyspace: Text<'a>,
        }) -> Map<Text<'static>, Map<Text<'static>, Text<'static>>>, throws (1: NotFound);

        /// Tokens that cut a range into parts of about this many keys.
        [V06 V06] describe_splits(DescribeSplitsArgs<'a> {
            1: required start_token: Text<'a>,
            2: required end_token: Text<'a>,
            3: required keys_per_split: i32,
        }) -> List<Text<'static>>;
    }
}
