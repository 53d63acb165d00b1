//! Defects that the harness can build into nodes: the simulation has to find each of them.

/// Something that is wrong with all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Defect {
    /// A write is acknowledged, and done a little later.
    AcknowledgedBeforeWritten,
    /// A replica acknowledges one write of twenty without doing it.
    WritesForgotten,
    /// In batch mode nobody waits for the sync.
    SyncSkipped,
    /// The columns of one mutation are written one after the other.
    RowsTorn,
    /// A replica now and then says that it knows nothing of a row.
    ReadsOfNothing,
    /// Replicas do not tell others of deletions.
    DeletionsUntold,
    /// Replicas answer range reads with fewer rows than they have.
    PagesCutShort,
    /// No hints are kept.
    HintsOff,
    /// Read repair leaves out a replica that lacks something.
    RepairsOff,
    /// One node takes the keyspace to have fewer replicas.
    ReplicationFactorWrong,
    /// Deletions are forgotten at the first compaction.
    GraceOfNothing,
    /// After a restart a node numbers its messages from the beginning.
    MessageIdsRepeat,
    /// Nobody notices that a message was damaged.
    ChecksumsIgnored,
    /// A node that is to collect data for another one says that it has, and has not.
    HeirsIdle,
    /// A node that joins acknowledges writes without doing them.
    PendingForgotten,
    /// A node that is asked for a piece of a range leaves out a row.
    PiecesIncomplete,
    /// Nobody waits until the others have heard of a change of the ring.
    HearingSkipped,
    /// The removal of a node that runs is not told to it, and the others do what it asks for.
    RemovalsForgotten,
    /// Nodes forget now and then what they have promised and accepted.
    PromisesForgotten,
    /// Participants do not tell others what they have accepted.
    ProposalsUnfinished,
}

impl Defect {
    /// Whether it shows only when the ring changes.
    pub(crate) fn needs_another_ring(self) -> bool {
        matches!(
            self,
            Self::HeirsIdle
                | Self::PendingForgotten
                | Self::PiecesIncomplete
                | Self::HearingSkipped
                | Self::RemovalsForgotten
        )
    }
}
