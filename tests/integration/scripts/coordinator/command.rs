//! The commands of these scripts.

/// A command. Nodes are named by their numbers.
#[derive(goldenscript::Command)]
pub(super) enum Command {
    /// Starts a cluster in the place of the one before: `nodes 5 replicas=3`.
    Nodes {
        count: usize,
        #[arg(key)]
        replicas: Option<usize>,
        /// How many of the nodes have a token.
        #[arg(key)]
        members: Option<usize>,
        /// The data centre of each node: `in=1.1.2`.
        #[arg(key = "in")]
        data_centers: Option<String>,
        /// How many replicas each data centre has: `by-center=1/3.2/1`.
        #[arg(key = "by-center")]
        by_data_center: Option<String>,
        /// The percentile of answers after which one more replica is asked.
        #[arg(key)]
        speculate: Option<f64>,
        /// Share of the reads that compare all replicas.
        #[arg(key)]
        compare: Option<f64>,
        /// Memory for all answers of a node.
        #[arg(key = "request-bytes")]
        request_bytes: Option<usize>,
        /// Longest body of a message.
        #[arg(key = "message-bytes")]
        message_bytes: Option<usize>,
        /// Most bytes of hints for a node.
        #[arg(key = "hint-bytes")]
        hint_bytes: Option<u64>,
        /// `threads`: node 1 has threads for work that waits for its disk; `dynamic-snitch`;
        /// `batch`: writes and hints
        /// wait for a sync; `unready`: nodes lack places and data at first.
        #[arg(optional, many)]
        features: Vec<String>,
    },

    // Requests of a client.
    /// `write a b name=Ada@5 level=QUORUM`: the same columns in each row, as one batch; with the
    /// tag `[each]` by one request after the other.
    Write {
        keys: Vec<String>,
        #[arg(key)]
        level: String,
        #[arg(key = "in")]
        family: Option<String>,
        columns: Vec<(String, String)>,
    },
    /// `delete a name at=6 level=ALL`; all of the row without a name.
    Delete {
        key: String,
        column: Option<String>,
        #[arg(key)]
        at: i64,
        #[arg(key)]
        level: String,
        #[arg(key = "in")]
        family: Option<String>,
    },
    /// `read a from=c to=e limit=2 level=ONE`, `read a columns=c.e level=ONE`; several rows too.
    Read {
        keys: Vec<String>,
        #[arg(key)]
        level: String,
        #[arg(key = "in")]
        family: Option<String>,
        #[arg(key)]
        from: Option<String>,
        #[arg(key)]
        to: Option<String>,
        #[arg(key)]
        limit: Option<usize>,
        #[arg(key)]
        columns: Option<String>,
    },
    Count {
        key: String,
        #[arg(key)]
        level: String,
        #[arg(key = "in")]
        family: Option<String>,
        #[arg(key)]
        below: Option<String>,
    },
    /// The first rows behind a key, up to a key: `scan from=b to=d rows=10 level=ONE`.
    Scan {
        #[arg(key)]
        level: String,
        #[arg(key = "in")]
        family: Option<String>,
        #[arg(key)]
        rows: usize,
        #[arg(key)]
        from: Option<String>,
        #[arg(key)]
        to: Option<String>,
        #[arg(key)]
        limit: Option<usize>,
    },
    /// Tokens that divide all rows of a node into parts of so many.
    Splits {
        rows: i32,
    },
    /// Waits for all requests that were begun with the tag `[later]`.
    Finish,

    /// A node outside of the cluster sends a message: `ask 1 MUTATION a name=Ada@5 hint=2.3`. With
    /// `digest` it asks for one; with `refusals` and `full-digests` it understands these; with
    /// `cut` the body lacks its end, and with `odd-hint` the header lacks its beginning.
    Ask {
        node: usize,
        verb: String,
        key: String,
        #[arg(key)]
        hint: Option<String>,
        #[arg(key)]
        times: Option<u64>,
        /// The time of a deletion of the row.
        #[arg(key = "deleted-at")]
        deleted_at: Option<i64>,
        #[arg(optional, many)]
        features: Vec<String>,
        #[arg(optional, many, key)]
        columns: Vec<(String, String)>,
    },

    // What nodes have.
    /// Writes to the disk of one node, behind the backs of the others: `put 2 a name=Ada@5`.
    Put {
        node: usize,
        keys: Vec<String>,
        columns: Vec<(String, String)>,
    },
    /// Deletes on the disk of one node: `drop 2 a name at=6`.
    Drop {
        node: usize,
        key: String,
        column: Option<String>,
        #[arg(key)]
        at: i64,
    },
    /// All that each node has of a row.
    Stored {
        key: String,
    },
    Hints,
    /// Counters of a coordinator since the start.
    Stats {
        node: usize,
    },
    /// The requests of other nodes that a node has dropped.
    Drops {
        node: usize,
    },

    /// How long replicas took, as the dynamic snitch of a node has it.
    Latencies {
        node: usize,
    },

    // The network.
    /// The messages since the last time.
    Messages,
    Lose {
        #[arg(key)]
        from: Option<usize>,
        #[arg(key)]
        to: Option<usize>,
        #[arg(key)]
        verb: Option<String>,
    },
    Delay {
        by: String,
        #[arg(key)]
        from: Option<usize>,
        #[arg(key)]
        to: Option<usize>,
        #[arg(key)]
        verb: Option<String>,
    },
    Repeat {
        #[arg(key)]
        verb: Option<String>,
    },
    /// Everything arrives again, once.
    Heal,

    // The cluster.
    /// Only these nodes seem alive.
    Alive {
        nodes: Vec<usize>,
    },
    /// Nodes that only collect the data of their places; none without an argument.
    Collecting {
        #[arg(optional, many)]
        nodes: Vec<usize>,
    },
    /// Nodes whose places are not settled.
    Unsettled {
        #[arg(optional, many)]
        nodes: Vec<usize>,
    },
    Removed {
        #[arg(optional, many)]
        nodes: Vec<usize>,
    },
    /// Nodes that announce nothing beyond what 0.6 does.
    Old {
        nodes: Vec<usize>,
    },
    /// State of a node in its own words: `unsure`, `alone`, `placed` or `complete`.
    Readiness {
        node: usize,
        readiness: String,
    },
    Joining {
        node: usize,
        token: String,
    },
    Joined {
        node: usize,
        token: String,
    },
    Leaving {
        node: usize,
    },
    Left {
        node: usize,
    },
    Ring,
    /// Whether writes of former rings are under way at a node.
    Quiet {
        node: usize,
    },
    /// A node refuses writes of clients, because it leaves.
    #[command(name = "refuse-writes")]
    RefuseWrites {
        node: usize,
    },
    /// A node may have stood still while the ring changed.
    Distrust {
        node: usize,
    },
    /// A node gives up what it waits for, as at its end.
    #[command(name = "give-up")]
    GiveUp {
        node: usize,
    },

    // Time and disks.
    Advance {
        by: String,
    },
    Flush {
        node: usize,
    },
    #[command(name = "sync-hints")]
    SyncHints {
        node: usize,
    },
    Stall {
        node: usize,
    },
    /// The commit log of a node is written and never synced.
    #[command(name = "stall-syncs")]
    StallSyncs {
        node: usize,
    },
    #[command(name = "go-on")]
    GoOn {
        node: usize,
    },
    /// Reads of files fail.
    #[command(name = "break-reads")]
    BreakReads {
        node: usize,
    },
    /// The disk is full.
    Fill {
        node: usize,
    },
    /// The disk has room again.
    Free {
        node: usize,
    },
}
