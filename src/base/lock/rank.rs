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
    Following: "following", "values of registers that the node follows, in order",
        "doing what a value says, such as a change of the schema";
    Membership: "membership",
        "the last note about the ring; the operation that was started last; changes of the schema",
        "writing notes to storage; starting an operation; a change";
    Gossip: "gossip", "the gossip state of this node; mode and outcome of an operation",
        "a round or message; updates of the coordinator's ring and of hints";
    Job: "job",
        "work done one at a time: snapshots and schema changes, upkeep of a hint log, sessions \
         with nodes of 0.6, updates of the snitch, connections to nodes, room for compactions",
        "the work";
    Register: "register", "the state of some registers, which change one at a time",
        "reading a state and writing the next one";
    Flush(Numbered): "flush",
        "flushes of a family, in order; a snapshot takes those of its families by number",
        "a flush; the flushes of a snapshot; truncating a family";
    FamilyNotes: "family notes", "families known to have data", "writing notes to storage";
    Gate(Numbered): "gate",
        "the switch of a memtable (exclusive) against writes to its family (shared)",
        "a write to all of its families, by number; a switch; the switches of a snapshot";
    Files: "files",
        "files that are written: active segment, manifest, hint log, saved caches; SSTables being \
         compacted; sizes of caches; hashes of rows; the wait for memory; the backlog of a family",
        "one `write`; replacing a manifest; choosing SSTables";
    View: "view", "memtables and live SSTables of a family; caches that share a budget",
        "copying or swapping a pointer; a write to the memtable; shrinking a cache";
    MemtableShard(Numbered): "memtable shard",
        "a map of rows; a flush reads all of a memtable, by number",
        "finding, adding or changing a row; writing a full memtable to an SSTable";
    MemtableRow: "memtable row", "cells of a row", "one mutation; copying a pointer";
    State: "state", "everything else: of these a thread takes one, and only those below under it",
        "a lookup or update";
    Last: "last",
        "names of column families, seeded chance, limits of log lines, samples of busy rows, \
         futures to poll",
        "a lookup or update";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::manual::check_part;

    #[test]
    fn ranks_are_documented() {
        let row = |Row { name, protects, held_for }: &Row| {
            format!("| {name} | {protects} | {held_for} |\n")
        };
        let rows: String = TABLE.iter().map(row).collect();
        let text = format!("| lock | protects | held for |\n|---|---|---|\n{rows}");
        check_part("docs/architecture.md", "ranks", &text);
    }
}
