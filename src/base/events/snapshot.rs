//! Snapshots coming and going.

use std::fmt;

/// A snapshot of one keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotEvent {
    /// It is durable.
    Taken {
        /// The keyspace.
        keyspace: String,
        /// The name of its folder.
        name: String,
        /// `SSTable` files in it.
        tables: usize,
    },
    /// It is gone from the disk.
    Cleared {
        /// The keyspace.
        keyspace: String,
        /// The name of its folder.
        name: String,
    },
}

impl fmt::Display for SnapshotEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { keyspace, name, tables } => {
                write!(f, "Snapshot {name} of {keyspace} holds {tables} SSTables")
            }
            Self::Cleared { keyspace, name } => write!(f, "Cleared snapshot {name} of {keyspace}"),
        }
    }
}
