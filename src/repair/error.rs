//! Errors of the layer.

use super::legacy::trees::java::TreeError;
use crate::base::java::TooLong;
use crate::net::bodies::{BodyError, EncodeError};
use crate::net::caller::CallError;
use crate::replica::Abandoned;
use crate::storage::compaction::CompactionError;
use crate::storage::database::{ExchangeError, IngestError, WriteError};
use crate::storage::error::{FileError, ReadError};
use crate::storage::legacy;
use std::io;
use std::net::IpAddr;

/// Result of most functions of the layer.
pub(super) type Result<T, E = OperationError> = std::result::Result<T, E>;

/// Reason why an operation was refused, or failed. The ring is as before in both cases, unless the
/// text says otherwise. Texts are those of 0.6 where it had any.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The text has the reason and a remedy.
    #[error("{0}")]
    Failed(String),
    /// A needed node is down; others may have its data.
    #[error("{0} is down")]
    Down(IpAddr),
    /// A node of 0.6 has restarted, and forgotten the session.
    #[error("it was started anew meanwhile, and has forgotten what it was told of the files")]
    Restarted,
    /// There is no ring to join.
    #[error(
        "No other nodes seen!  Unable to bootstrap. See that the seeds run and that ListenAddress, \
         StoragePort and ClusterName are right"
    )]
    NobodySeen,
    /// Only members can leave or move.
    #[error("local node is not a member of the token ring yet")]
    NotMember,
    /// A member does not bootstrap.
    #[error(
        "This node is already a member of the token ring; bootstrap aborted. (If replacing a dead \
         node, remove the old one from the ring first, or start this one under another address \
         with -Dcassandra.replace_token=TOKEN.)"
    )]
    AlreadyMember,
    /// The change does not fit the ring any more.
    #[error("the ring has changed meanwhile: do it again")]
    RingChanged,
    /// The node stops, or the result is not awaited any more.
    #[error("nobody waits for it any more")]
    GivenUp,
    /// The node stops.
    #[error("the node is stopping")]
    Stopping,
    /// A node does not answer, or refuses.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A message cannot be read.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A message cannot be written.
    #[error("it cannot be sent: {0}")]
    Encode(#[from] EncodeError),
    /// A message cannot be written.
    #[error("it cannot be sent: {0}")]
    TooLong(#[from] TooLong),
    /// A connection for a file breaks.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Rows cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Rows cannot be read or dropped.
    #[error(transparent)]
    Compaction(#[from] CompactionError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Received rows cannot be stored.
    #[error("what has come cannot be kept: {0}")]
    Ingest(#[from] IngestError),
    /// Rows cannot be written to files of 0.6, or read from such.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// A row has no form in a file of 0.6.
    #[error("a row cannot be put together: {0}")]
    Row(#[from] legacy::WriteError),
    /// The new place cannot be saved.
    #[error("the new place of this node cannot be saved: {0}")]
    Save(#[from] WriteError),
}

impl From<Abandoned> for OperationError {
    fn from(_: Abandoned) -> Self {
        Self::Stopping
    }
}

impl From<TreeError> for OperationError {
    fn from(error: TreeError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// An error with this text.
pub(super) fn fail<T>(why: impl Into<String>) -> Result<T> {
    Err(OperationError::Failed(why.into()))
}

impl OperationError {
    pub(super) fn existing_token(token: &str, owner: IpAddr) -> Self {
        Self::Failed(format!(
            "Bootstraping to existing token {token} is not allowed (decommission/removetoken the \
             old node first). It is that of {owner}"
        ))
    }

    /// The error for the removal of a live node.
    pub(super) fn alive(owner: IpAddr) -> Self {
        Self::Failed(format!(
            "Node /{owner} is alive and owns this token. Use decommission command to remove it \
             from the ring"
        ))
    }

    pub(super) fn receiver_down(receiver: IpAddr) -> Self {
        Self::Failed(format!(
            "{receiver} is down, which is to take over data: bring it up, or remove it first"
        ))
    }

    /// The error of a replica in a repair.
    pub(super) fn repair(replica: IpAddr, why: impl std::fmt::Display) -> Self {
        Self::Failed(format!(
            "{replica} could not do its part, what was repaired until then stays so: {why}"
        ))
    }
}
