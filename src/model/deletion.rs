//! The deletion of a whole row or of a whole super column.

/// Everything up to a moment is deleted: what a row and each super column carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Deletion {
    /// Columns whose timestamp is this or less are deleted. Chosen by the client.
    pub marked_for_delete_at: i64,
    /// When the delete was made, in seconds since the Unix epoch: its grace period runs from here.
    pub local_deletion_time: i32,
}

impl Deletion {
    /// Never deleted.
    pub const NONE: Self = Self { marked_for_delete_at: i64::MIN, local_deletion_time: i32::MIN };

    /// A deletion made now, of what is as old as `marked_for_delete_at` or older.
    pub fn at(marked_for_delete_at: i64, local_deletion_time: i32) -> Self {
        Self { marked_for_delete_at, local_deletion_time }
    }

    /// The one that deletes more; of two that delete the same, the one that was made later. 0.6
    /// takes the greater of each half: then what is left depends on whether a compaction has
    /// dropped the one before it could meet the other, and replicas differ forever.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let rank = |it: &Self| (it.marked_for_delete_at, it.local_deletion_time);
        if rank(&self) < rank(&other) { other } else { self }
    }

    /// Whether a column of this timestamp is deleted. Equal means deleted.
    pub fn covers(&self, timestamp: i64) -> bool {
        timestamp <= self.marked_for_delete_at
    }

    /// Whether there is no deletion at all.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Whether its grace period is over, so that compaction may drop it where that is safe.
    pub fn is_expired(&self, gc_before: i32) -> bool {
        self.local_deletion_time <= gc_before
    }
}
