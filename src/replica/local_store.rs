//! What a node keeps its data in, as the layers above see it.

use crate::base::context::RequestContext;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::FamilyId;
use crate::model::slice::{RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::{RowRange, RowSamples, TokenRange};
use crate::storage::error::ReadError;
use crate::storage::sstable::Access;
use std::error::Error;
use std::sync::Arc;

/// The data of one node. All methods are called from many threads at once.
///
/// With [`Access::CachedOnly`], or `may_block` false, a method answers from memory or refuses with
/// `WouldBlock`, and has done nothing then. It also refuses what would keep the calling thread
/// busy for long, such as a scan of many rows.
pub trait LocalStore: Send + Sync + 'static {
    /// Writes mutations to the commit log and to memory. Later reads on this node see them, also
    /// while they are [`Applied::Pending`].
    fn apply(&self, mutations: &[RowMutation], may_block: bool) -> Result<Applied, WriteError>;

    /// Calls back, on some thread, when the log is on disk up to this position, or never can be.
    /// The callback must not block.
    fn on_durable(
        &self,
        position: LogPosition,
        callback: Box<dyn FnOnce(Result<(), WriteError>) + Send>,
    );

    /// The visible columns of a slice of one row. All reads and scans for one answer share its
    /// context; those that fail leave its memory as it was. Long work ends soon after its context
    /// says so.
    fn read(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowSlice, ReadError>;

    /// How many columns, or super columns, [`LocalStore::read`] would find.
    fn count(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<usize, ReadError>;

    /// The first `max_rows` rows of a range that have anything stored, tombstones included, in the
    /// order of their tokens, with the slice of each.
    fn scan(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowSlice)>, ReadError>;

    /// What is known of a slice of one row, deletions included, as other replicas have to hear it.
    fn read_version(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowVersion, ReadError>;

    /// [`LocalStore::read_version`] of the rows that [`LocalStore::scan`] would find.
    fn scan_versions(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowVersion)>, ReadError>;

    /// The rows of a range that are stored here as samples of about `IndexInterval`, of all column
    /// families of all keyspaces but `system`.
    fn row_samples(
        &self,
        range: TokenRange,
        context: &RequestContext,
    ) -> Result<RowSamples, ReadError>;
}

/// What has become of a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It may be acknowledged.
    Durable,
    /// It may be acknowledged when the log is on disk up to here.
    Pending(LogPosition),
}

/// A place in the commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// Number of the segment.
    pub segment: u64,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// Why a mutation was not written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// Writing would block the calling thread, and it may not. Nothing happened; ask again on a
    /// thread that may block.
    #[error("the write has to wait")]
    WouldBlock,
    /// The store takes no writes, and why.
    #[error("the store refuses writes: {0}")]
    Refused(Arc<dyn Error + Send + Sync>),
}
