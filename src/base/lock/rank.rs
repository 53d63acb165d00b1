//! The order of all locks, the outermost first.
//!
//! A thread that holds a lock takes only locks further down. Locks that are never held together
//! may share a rank: of one rank a thread holds one lock at a time, unless it is [`Numbered`]. A
//! new lock goes below those that are held when it is taken, and above those taken under it.

/// Place of a lock in the order.
pub trait Rank {
    /// Number of its row in [`TABLE`].
    const INDEX: usize;
}

/// Ranks whose locks may be held together: a thread takes them by ascending number.
pub trait Numbered: Rank {}

/// A row of the table of ranks.
#[derive(Debug)]
pub struct Row {
    /// Name for messages and documents.
    pub name: &'static str,
    /// Data, or the work of which only one is to run.
    pub protects: &'static str,
    /// The longest that is done under it.
    pub held_for: &'static str,
}

macro_rules! ranks {
    ($($rank:ident $(($marker:ident))?: $name:literal, $protects:literal, $held_for:literal;)+) => {
        $(
            #[doc = concat!("Protects ", $protects, ".")]
            #[derive(Debug)]
            pub enum $rank {}

            impl Rank for $rank {
                const INDEX: usize = Index::$rank as usize;
            }

            $(impl $marker for $rank {})?
        )+

        enum Index {
            $($rank),+
        }

        /// All ranks in order.
        pub const TABLE: &[Row] = &[
            $(Row { name: $name, protects: $protects, held_for: $held_for }),+
        ];
    };
}

ranks! {
    // Membership.
    RingNotes: "ring notes", "the time of the last note about the ring", "writing notes to storage";
    Gossip: "gossip", "the gossip state of this node, and what it announces",
        "a round or message; updates of the coordinator's ring and of hints";
    HintDelivery: "hint delivery", "deliveries under way and postponed", "a lookup or update";

    // Repair and topology.
    LastOperation: "last operation", "the operation that an operator started last",
        "a report; starting one";
    Operation: "operation", "mode and outcome of an operation", "a report or update";
    RepairProgress: "repair progress",
        "jobs, fetch queues, progress and traffic, each under its own lock",
        "a lookup or update";
    RowHashes: "row hashes", "hashes of rows from earlier validations",
        "a lookup; adding the hashes of a validation";
    LegacyStreams: "streams from 0.6", "sessions by source", "a lookup or update";
    LegacySession: "session with 0.6", "progress of one session", "an update";
    LegacyPeers: "peers of version 0.6",
        "streams to them, and trees and comparisons under way, each under its own lock",
        "a lookup or update";

    // Hints.
    HintLogs: "hint logs", "the log of each target", "a lookup or insertion";
    HintUpkeep: "upkeep of a hint log", "syncs and removals of its files, one at a time",
        "syncing its files; removing some";
    HintLog: "hint log", "positions in one log",
        "one `write`; making a file or removing the folder, without a sync";
    HintWarnings: "hint warnings", "families that had a warning", "an insertion";

    // Requests.
    RingView: "ring view", "the coordinator's ring, and writes that began before it changed",
        "copying or swapping a pointer; a look at those writes";
    Request: "request", "acknowledgements of one write or read repair", "counting one";
    Unacknowledged: "unacknowledged writes", "bytes under way to each node", "an update";
    Replies: "replies", "requests that wait for replies (in shards)", "a lookup or update";
    Call: "call", "the receiver of the answer to a call", "taking it";
    ReplicaJobs: "replica jobs", "the queue of a thread pool of the replica",
        "adding or taking a job";

    // Storage: one at a time.
    Snapshots: "snapshots", "snapshots and schema changes, one at a time",
        "taking or removing snapshots; adding or dropping a family";
    Flush(Numbered): "flush",
        "flushes of a family, in order; a snapshot takes those of its families by number",
        "a flush; the flushes of a snapshot; truncating a family";
    FamilyNotes: "family notes", "families known to have data", "writing notes to storage";
    Gate(Numbered): "gate",
        "the switch of a memtable (exclusive) against writes to its family (shared)",
        "a write to all of its families, by number; a switch; the switches of a snapshot";
    MemtableRoom: "memtable room", "nothing: writers wait on it for memory",
        "a look at all families";

    // Commit log.
    CommitLogWriter: "commit log writer", "the active segment file",
        "one `write` for all waiting records";
    CommitLogSegments: "commit log segments", "the next segment", "making a segment";
    CommitLogQueue: "commit log queue", "records to write next", "copying a record";
    CommitLogSync: "commit log sync", "positions that are waited for", "a lookup or update";
    ArchiveQueue: "archive queue", "segments to archive", "adding or taking some";

    // Column families.
    CompactionAdmission: "compaction admission", "disk space that compactions count on",
        "a look at the disk";
    CompactionClaims: "compaction claims", "SSTables being compacted", "choosing some";
    SavedCaches: "saved caches", "files of saved caches", "writing one";
    CacheSizes: "cache sizes", "configured sizes of the caches of a family", "resizing them";
    CompactionQueue: "compaction queue", "families to compact, and those postponed",
        "adding or taking some";
    Manifest: "manifest", "the set of live SSTables on disk", "replacing the manifest file";
    Merges: "merges", "which SSTables were merged into which", "an addition; copying the list";
    ReplacedTables: "replaced SSTables", "files to delete after their last reader",
        "adding some, or taking out those without readers";
    View: "view", "memtables and live SSTables of a family",
        "copying or swapping a pointer; a write to the memtable";
    CacheBudget: "cache budget", "caches that share a budget", "shrinking the largest";
    CacheBounds: "cache bounds", "most entries of a cache", "evicting entries";
    MemtableShard(Numbered): "memtable shard",
        "a map of rows; a flush reads all of a memtable, by number",
        "finding, adding or changing a row; writing a full memtable to an SSTable";
    MemtableRow: "memtable row", "cells of a row", "one mutation; copying a pointer";
    FlushQueue: "flush queue", "flushes to do", "adding or taking one";
    RunningCompactions: "running compactions", "compactions under way",
        "adding, removing or listing them";
    Shortages: "shortages", "families that wait for disk space", "a lookup or update";
    BlockReader: "block reader", "the last block and the read-ahead of one reader", "reading ahead";
    ReadyBuffers: "ready buffers", "buffers for blocks", "adding or taking one";

    // Small state, each with its own lock.
    Throttle: "throttle", "bytes ahead of the rate", "an addition";
    RecentStatistics: "recent statistics", "counters of some time ago",
        "adding or copying a set";
    RackFile: "rack file", "version of the rack file that was read", "reading it";
    Racks: "racks", "the rack file in force", "copying or swapping a pointer";
    SnitchUpdate: "snitch update", "the time of the last reset", "computing the scores";
    SnitchWindows: "snitch windows", "recent latencies",
        "copying a pointer, or the map for a new endpoint";
    SnitchScores: "snitch scores", "scores of endpoints", "copying or swapping a pointer";
    LatencyDecay: "latency decay", "the time when latencies were halved", "halving the counts";
    LoginTurns: "login turns", "addresses that log in", "a lookup";
    ServerBuffers: "server buffers", "free buffers of a worker", "adding or taking one";
    Peers: "peers", "connections of the node protocol", "a lookup or insertion";
    PeerQueue: "peer queue", "messages to a peer", "adding some, or taking a batch";
    Listener: "listener", "the socket of the node protocol before it is served", "taking it";
    BudgetLoan: "budget loan", "memory that requests borrow from the block cache",
        "resizing the cache";
    Schema: "schema", "names of keyspaces and column families", "a lookup or update";
    Threads: "threads", "handles of threads to join", "adding or taking them";
    Random: "random numbers", "a seeded generator", "drawing a number";
    Wakers: "wakers", "futures of one task to poll", "an addition";
    LogLimits: "log limits", "the last line about each subject", "a lookup or update";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/architecture.md");
    const HEAD: &str = "| lock | protects | held for |\n|---|---|---|\n";

    /// The document lists the ranks; with `ALEXANDRA_WRITE_DOCS` it is rewritten.
    #[test]
    fn ranks_are_documented() {
        let mut table = HEAD.to_owned();
        for Row { name, protects, held_for } in TABLE {
            let _ = writeln!(table, "| {name} | {protects} | {held_for} |");
        }
        let document = std::fs::read_to_string(DOCUMENT).unwrap();
        let start = document.find(HEAD).expect("the document has a table of locks");
        let rows = document[start..].lines().take_while(|line| line.starts_with('|'));
        let end = start + rows.map(|row| row.len() + 1).sum::<usize>();
        if document[start..end] == table {
            return;
        }
        if std::env::var_os("ALEXANDRA_WRITE_DOCS").is_some() {
            let document = format!("{}{table}{}", &document[..start], &document[end..]);
            return std::fs::write(DOCUMENT, document).unwrap();
        }
        panic!(
            "docs/architecture.md has another order of locks: run this test with \
             ALEXANDRA_WRITE_DOCS=1, or paste\n\n{table}"
        );
    }
}
