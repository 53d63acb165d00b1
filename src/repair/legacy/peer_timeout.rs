//! Waiting for nodes of 0.6, which may die meanwhile.

use crate::repair::host::Host;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Time that a node may seem dead before it is given up.
const DEAD: Duration = Duration::from_secs(30);

/// Polls the liveness of a node that is waited for.
pub(super) struct PeerTimeout {
    began: Instant,
    seen_alive: Instant,
}

impl PeerTimeout {
    pub(super) fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, seen_alive: now }
    }

    /// Whether the node has seemed dead for too long.
    pub(super) fn is_lost(&mut self, node: IpAddr, host: &dyn Host) -> bool {
        if host.look().live.contains(&node) {
            self.seen_alive = Instant::now();
        }
        self.seen_alive.elapsed() >= DEAD
    }

    /// How long it has been waited for.
    pub(super) fn lasts(&self) -> Duration {
        self.began.elapsed()
    }
}
