//! Consequences of a removal of a node by one of 0.6.

use crate::repair::progress::ProgressCounters;
use crate::repair::transfer::plan::ranges_by_receiver;
use crate::repair::transfer::{Fetcher, WantedRange};
use crate::ring::TokenMetadata;
use std::net::IpAddr;
use std::time::Duration;

/// Most attempts to collect the data, and the pause after a failure.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_mins(1);

impl Fetcher {
    /// Collects the data of which this node has become a replica because a node of 0.6 has removed
    /// another one, which has asked nobody before: each collects what it gets, as there. Until that
    /// is done reads at ONE may find less here. Must be called within a tokio runtime.
    pub(crate) fn restore(&self, by: IpAddr, before: &TokenMetadata, after: &TokenMetadata) {
        let mut receivers = ranges_by_receiver(&self.node.placements, before, after);
        let Some(wanted) = receivers.remove(&self.node.local()) else { return };
        log::info!("{by} has removed a node: this one collects {} ranges", wanted.len());
        let this = self.clone();
        self.legacy.spawn(async move { this.restore_ranges(&wanted).await });
    }

    async fn restore_ranges(&self, wanted: &[WantedRange]) {
        for _ in 0..ATTEMPTS {
            let progress = ProgressCounters::default();
            match self.fetch(wanted, &progress).await {
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
