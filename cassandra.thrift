# The interface that clients of Apache Cassandra 0.6 were generated from: version 2.2.0, which
# 0.6.4 to 0.6.13 speak. Generate a client from this file, or use one of the time.
#
# The structs kept their numbers and types from 0.4 on. `tests/integration/idl.rs` holds the server's
# own tables against this file.

namespace java org.apache.cassandra.thrift
namespace cpp org.apache.cassandra
namespace netstd Apache.Cassandra
namespace py cassandra
namespace php cassandra
namespace perl Cassandra
namespace rb CassandraThrift

const string VERSION = "2.2.0"

# ---- data

/** A name, its value and the time that decides between two writes of the same name. */
struct Column {
    1: required binary name,
    2: required binary value,
    3: required i64 timestamp,
}

/** Columns grouped under a name of their own. */
struct SuperColumn {
    1: required binary name,
    2: required list<Column> columns,
}

/** What a row holds: exactly one of the two is set. */
struct ColumnOrSuperColumn {
    1: optional Column column,
    2: optional SuperColumn super_column,
}

# ---- exceptions

/** The one thing that was asked for is not there. */
exception NotFoundException {
}

/** The request cannot be meant as it is; `why` tells what is wrong. */
exception InvalidRequestException {
    1: required string why
}

/** Fewer replicas are alive than the consistency level needs. Nothing was tried. */
exception UnavailableException {
}

/** Fewer replicas answered in time than the consistency level needs. A write may still happen. */
exception TimedOutException {
}

/** The credentials were not accepted. */
exception AuthenticationException {
    1: required string why
}

/** The user may not do this. */
exception AuthorizationException {
    1: required string why
}

# ---- what a call says

/**
 * How many replicas take part before a call is answered. Reads know neither ZERO nor ANY.
 * 0.4 had 3 for ALL.
 */
enum ConsistencyLevel {
    ZERO = 0,
    ONE = 1,
    QUORUM = 2,
    DCQUORUM = 3,
    DCQUORUMSYNC = 4,
    ALL = 5,
    ANY = 6,
}

/** A row of a column family, or a super column in it: something that has columns. */
struct ColumnParent {
    3: required string column_family,
    4: optional binary super_column,
}

/** A column, a super column or, with neither, a row. */
struct ColumnPath {
    3: required string column_family,
    4: optional binary super_column,
    5: optional binary column,
}

/** Neighbouring columns; an empty name stands for the end of the row. */
struct SliceRange {
    1: required binary start,
    2: required binary finish,
    3: required bool reversed = 0,
    4: required i32 count = 100,
}

/** Columns by name or by range: one of the two is set. */
struct SlicePredicate {
    1: optional list<binary> column_names,
    2: optional SliceRange slice_range,
}

/** Rows between two keys, both inclusive, or after one token and up to another. */
struct KeyRange {
    1: optional string start_key,
    2: optional string end_key,
    3: optional string start_token,
    4: optional string end_token,
    5: required i32 count = 100,
}

/** A row of a range, with what was asked of it. */
struct KeySlice {
    1: required string key,
    2: required list<ColumnOrSuperColumn> columns,
}

/** Covers whatever is older than its timestamp in a row, a super column or by name. */
struct Deletion {
    1: required i64 timestamp,
    2: optional binary super_column,
    3: optional SlicePredicate predicate,
}

/** One write of a batch: one of the two is set. */
struct Mutation {
    1: optional ColumnOrSuperColumn column_or_supercolumn,
    2: optional Deletion deletion,
}

/** A part of the ring, first token exclusive, and the addresses that answer for it. */
struct TokenRange {
    1: required string start_token,
    2: required string end_token,
    3: required list<string> endpoints,
}

/** What the authenticator of the server wants to see. */
struct AuthenticationRequest {
    1: required map<string, string> credentials,
}

# ---- calls

service Cassandra {

    /** Makes the connection that of a user, until it ends. */
    void login(1: required string keyspace, 2: required AuthenticationRequest auth_request)
        throws (1: AuthenticationException authnx, 2: AuthorizationException authzx),

    # -- reading

    /** One column or super column. */
    ColumnOrSuperColumn get(1: required string keyspace,
                            2: required string key,
                            3: required ColumnPath column_path,
                            4: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: NotFoundException nfe,
                3: UnavailableException ue, 4: TimedOutException te),

    /** Columns of a row or of a super column. */
    list<ColumnOrSuperColumn> get_slice(1: required string keyspace,
                                        2: required string key,
                                        3: required ColumnParent column_parent,
                                        4: required SlicePredicate predicate,
                                        5: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    /** `get` for several keys. Deprecated: `multiget_slice` can do it. */
    map<string, ColumnOrSuperColumn> multiget(1: required string keyspace,
                                              2: required list<string> keys,
                                              3: required ColumnPath column_path,
                                              4: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    /** `get_slice` for several keys. */
    map<string, list<ColumnOrSuperColumn>> multiget_slice(
            1: required string keyspace,
            2: required list<string> keys,
            3: required ColumnParent column_parent,
            4: required SlicePredicate predicate,
            5: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    /** Number of columns of a row or of a super column. Reads them all. */
    i32 get_count(1: required string keyspace,
                  2: required string key,
                  3: required ColumnParent column_parent,
                  4: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    /** Columns of neighbouring rows. Deprecated: `get_range_slices` knows tokens as well. */
    list<KeySlice> get_range_slice(1: required string keyspace,
                                   2: required ColumnParent column_parent,
                                   3: required SlicePredicate predicate,
                                   4: required string start_key = "",
                                   5: required string finish_key = "",
                                   6: required i32 row_count = 100,
                                   7: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    /** Columns of neighbouring rows, in the order of the partitioner. */
    list<KeySlice> get_range_slices(1: required string keyspace,
                                    2: required ColumnParent column_parent,
                                    3: required SlicePredicate predicate,
                                    4: required KeyRange range,
                                    5: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    # -- writing

    /** One column. */
    void insert(1: required string keyspace,
                2: required string key,
                3: required ColumnPath column_path,
                4: required binary value,
                5: required i64 timestamp,
                6: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    /** Columns of one row, by column family. Deprecated: `batch_mutate` can do it. */
    void batch_insert(1: required string keyspace,
                      2: required string key,
                      3: required map<string, list<ColumnOrSuperColumn>> cfmap,
                      4: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    /** Deletes a column, a super column or a row. */
    void remove(1: required string keyspace,
                2: required string key,
                3: required ColumnPath column_path,
                4: required i64 timestamp,
                5: ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    /** Insertions and deletions, by row key and column family. */
    void batch_mutate(1: required string keyspace,
                      2: required map<string, map<string, list<Mutation>>> mutation_map,
                      3: required ConsistencyLevel consistency_level = ConsistencyLevel.ONE)
        throws (1: InvalidRequestException ire, 2: UnavailableException ue,
                3: TimedOutException te),

    # -- about the server

    /** A property of the node or the cluster, as text. Deprecated by the calls below. */
    string get_string_property(1: required string property),

    /** A property that has several values. Deprecated by the calls below. */
    list<string> get_string_list_property(1: required string property),

    /** Names of the keyspaces. */
    set<string> describe_keyspaces(),

    /** Name of the cluster. */
    string describe_cluster_name(),

    /** Version of this interface. */
    string describe_version(),

    /** The parts of the ring, with the replicas that a keyspace has there. */
    list<TokenRange> describe_ring(1: required string keyspace)
        throws (1: InvalidRequestException ire),

    /** Class name of the partitioner. */
    string describe_partitioner(),

    /** The column families of a keyspace with their properties. */
    map<string, map<string, string>> describe_keyspace(1: required string keyspace)
        throws (1: NotFoundException nfe),

    /** Tokens that cut a range into parts with about so many keys each. */
    list<string> describe_splits(1: required string start_token,
                                 2: required string end_token,
                                 3: required i32 keys_per_split),
}
