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
    /// How many acknowledgements a write waits for that goes to so many replicas, and to so many
    /// endpoints that are about to become some. Writes count the endpoints that exist, so that a
    /// ring smaller than the replication factor takes them; where there is no endpoint at all they
    /// are too few.
    ///
    /// With several pending endpoints more than half of all, as in 0.6, might be few replicas, and
    /// a read at `Quorum` would miss them. Whichever of the endpoints are replicas in the end, half
    /// of them have acknowledged.
    pub fn block_for_write(self, natural: usize, pending: usize) -> usize {
        let endpoints = natural + pending;
        match self {
            Self::Zero => 0,
            Self::Any | Self::One => 1,
            Self::Quorum => (endpoints / 2 + 1).max(natural.div_ceil(2) + pending),
            Self::DcQuorum | Self::DcQuorumSync | Self::All => endpoints.max(1),
        }
    }

    /// How many replies a read waits for. Reads count the configured replication factor, whatever
    /// the size of the ring.
    pub fn block_for_read(self, replication_factor: usize) -> usize {
        match self {
            Self::Zero | Self::Any | Self::One => 1,
            Self::Quorum => replication_factor / 2 + 1,
            Self::DcQuorum | Self::DcQuorumSync | Self::All => replication_factor.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ConsistencyLevel::{All, Any, DcQuorum, DcQuorumSync, One, Quorum, Zero};

    #[test]
    fn quorums_are_more_than_half() {
        let quorums = [1, 2, 3, 4, 5, 6].map(|n| Quorum.block_for_write(n, 0));
        assert_eq!(quorums, [1, 2, 2, 3, 3, 4]);
        assert_eq!(Quorum.block_for_read(3), 2);
    }

    #[test]
    fn a_quorum_of_those_to_be_overlaps_with_any_read() {
        for (natural, pending) in (1..8).flat_map(|n| (0..5).map(move |p| (n, p))) {
            let needed = Quorum.block_for_write(natural, pending);
            assert!(needed <= natural + pending && 2 * needed > natural + pending);
            // The fewest of any `natural` endpoints that have acknowledged.
            let fewest = needed - pending;
            assert!(fewest + Quorum.block_for_read(natural) > natural, "{natural} {pending}");
        }
        assert_eq!(Quorum.block_for_write(3, 1), 3);
    }

    #[test]
    fn other_levels_are_one_or_all() {
        for level in [All, DcQuorum, DcQuorumSync] {
            assert_eq!((level.block_for_write(3, 1), level.block_for_read(3)), (4, 3), "{level:?}");
        }
        for level in [One, Any] {
            assert_eq!((level.block_for_write(3, 1), level.block_for_read(3)), (1, 1), "{level:?}");
        }
        assert_eq!(Zero.block_for_write(4, 0), 0);
        for level in [Any, One, Quorum, DcQuorum, DcQuorumSync, All] {
            assert_eq!((level.block_for_write(0, 0), level.block_for_read(0)), (1, 1), "{level:?}");
        }
    }
}
