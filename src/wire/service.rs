//! The service of the IDL, line by line: the union of what 0.4, 0.5 and 0.6 have.

use super::codec::{Binary, List, Map, Set, Text};
use super::macros::thrift_service;
use super::types::{
    AuthenticationRequest, ColumnOrSuperColumn, ColumnParent, ColumnPath, ConsistencyLevel,
    KeyRange, KeySlice, Mutation, SlicePredicate, TokenRange,
};

thrift_service! {
    /// What answers the calls. Each method consumes its [`Reply`](super::reply::Reply) by
    /// answering, and hands the receipt back. Arguments borrow from the request, so that answers
    /// and writes copy only what they keep. A panic is answered as an internal error of that call.
    ///
    /// The connections of a worker share its thread: a method that would block, or compute for
    /// long, does so elsewhere and awaits the outcome. Once begun, a call is never dropped before
    /// its end, unless a stopping server runs out of patience.
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

        /// The same column of several rows. An absent one is an empty `ColumnOrSuperColumn`.
        [V04 V06] multiget(MultigetArgs<'a> {
            1: required keyspace: Text<'a>,
            2: required keys: List<Text<'a>>,
            3: required column_path: ColumnPath<'a>,
            4: required consistency_level: ConsistencyLevel = ConsistencyLevel::One,
        }) -> Map<Text<'static>, ColumnOrSuperColumn<'static>>,
            throws (1: InvalidRequest, 2: Unavailable, 3: TimedOut);

        /// The same columns of several rows.
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

        /// Tokens that cut a range into parts of about so many keys.
        [V06 V06] describe_splits(DescribeSplitsArgs<'a> {
            1: required start_token: Text<'a>,
            2: required end_token: Text<'a>,
            3: required keys_per_split: i32,
        }) -> List<Text<'static>>;
    }
}
