//! Consistency levels.

/// How many replicas must take part before a call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConsistencyLevel {
    /// None: a write is sent and not waited for.
    Zero,
    /// One node, be it only to hold a hint. For range queries as `One`.
    Any,
    /// One replica.
    One,
    /// More than half of the replicas.
    Quorum,
    /// As `All` with the strategies that are not aware of data centres.
    DcQuorum,
    /// As `DcQuorum`.
    DcQuorumSync,
    /// Every replica.
    All,
}

impl ConsistencyLevel {
    /// How many acknowledgements a write to this many endpoints waits for. Writes count the
    /// endpoints that exist, so that a ring smaller than the replication factor takes them.
    pub fn block_for_write(self, endpoints: usize) -> usize {
        match self {
            Self::Zero => 0,
            Self::Any | Self::One => 1,
            Self::Quorum => endpoints / 2 + 1,
            Self::DcQuorum | Self::DcQuorumSync | Self::All => endpoints,
        }
    }

    /// How many replies a read waits for. Reads count the configured replication factor, whatever
    /// the size of the ring.
    pub fn block_for_read(self, replication_factor: usize) -> usize {
        match self {
            Self::Zero | Self::Any | Self::One => 1,
            Self::Quorum => replication_factor / 2 + 1,
            Self::DcQuorum | Self::DcQuorumSync | Self::All => replication_factor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ConsistencyLevel::{All, Any, DcQuorum, DcQuorumSync, One, Quorum, Zero};

    #[test]
    fn quorums_are_more_than_half() {
        let quorums = [1, 2, 3, 4, 5, 6].map(|n| Quorum.block_for_write(n));
        assert_eq!(quorums, [1, 2, 2, 3, 3, 4]);
        assert_eq!(Quorum.block_for_read(3), 2);
    }

    #[test]
    fn other_levels_are_one_or_all() {
        for level in [All, DcQuorum, DcQuorumSync] {
            assert_eq!((level.block_for_write(4), level.block_for_read(3)), (4, 3), "{level:?}");
        }
        for level in [One, Any] {
            assert_eq!((level.block_for_write(4), level.block_for_read(3)), (1, 1), "{level:?}");
        }
        assert_eq!(Zero.block_for_write(4), 0);
    }
}
