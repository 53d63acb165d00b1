//! What follows when a node of 0.6 removes another one from the ring.

use crate::repair::host::Host;
use crate::repair::progress::ProgressCounters;
use crate::repair::topology::steps::Steps;
use crate::repair::transfer::WantedRange;
use crate::repair::transfer::plan::ranges_by_receiver;
use crate::ring::TokenMetadata;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often data are asked for, and how long after a failure.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_mins(1);

impl Steps {
    /// Collects the data of which this node has become a replica because a node of 0.6 has removed
    /// another one, which has asked nobody before: each collects what it gets, as there. Until that
    /// is done reads at ONE may find less here. Must be called within a tokio runtime.
    pub(in crate::repair) fn restore(
        self: &Arc<Self>,
        by: IpAddr,
        (before, after): (&TokenMetadata, &TokenMetadata),
        host: &Arc<dyn Host>,
    ) {
        let mut receivers = ranges_by_receiver(&self.placements, before, after);
        let Some(wanted) = receivers.remove(&self.local) else {
            return;
        };
        log::info!("{by} has removed a node: this one collects {} ranges", wanted.len());
        let (steps, host) = (Arc::clone(self), Arc::clone(host));
        self.fetcher.legacy.spawn(async move { steps.collect(&wanted, &*host).await });
    }

    async fn collect(&self, wanted: &[WantedRange], host: &dyn Host) {
        for _ in 0..ATTEMPTS {
            let progress = ProgressCounters::default();
            match self.fetcher.fetch(wanted, host, &progress).await {
                Ok(()) => {
                    let rows = progress.now().rows;
                    log::info!("collected {rows} rows that a removed node had");
                    return;
                }
                Err(error) => log::warn!("what a removed node had cannot be collected: {error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        log::error!("this node lacks rows that a removed node had: run nodetool repair");
    }
}
