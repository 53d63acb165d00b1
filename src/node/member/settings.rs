//! Settings of a member that change while it runs.

use super::{Member, SCHEMA_STATE, announce};
use std::time::Duration;

impl Member {
    /// Sets the phi above which nodes count as dead, from the next round of gossip on.
    pub fn set_phi_convict_threshold(&self, threshold: f64) {
        self.lock().gossiper.detector.threshold = threshold;
    }

    /// Sets `RpcTimeoutInMillis` and `StreamThroughputInMBPerSecond`, the latter in bytes per
    /// second; `None` for no limit.
    pub fn set_limits(&self, rpc_timeout: Duration, stream_rate: Option<u64>) {
        self.messenger.set_timeout(rpc_timeout);
        self.operations.set_rate(stream_rate);
    }

    /// Announces the fingerprint of the settings on which all nodes have to agree.
    pub fn announce_schema(&self, fingerprint: &str) {
        announce(&mut self.lock().gossiper, SCHEMA_STATE, fingerprint);
    }
}
