//! Settings of a member that change while it runs.

use super::{Member, SCHEMA_STATE, announce};
use std::time::Duration;

impl Member {
    /// Sets the phi above which nodes count as dead, from the next round of gossip on.
    pub fn set_phi_convict_threshold(&self, threshold: f64) {
        self.lock().gossiper.detector.threshold = threshold;
    }

    /// Sets `RpcTimeoutInMillis`.
    pub fn set_rpc_timeout(&self, timeout: Duration) {
        self.messenger.set_timeout(timeout);
    }

    /// Announces the fingerprint of the settings on which all nodes have to agree.
    pub fn announce_schema(&self, fingerprint: &str) {
        announce(&mut self.lock().gossiper, SCHEMA_STATE, fingerprint);
    }
}
