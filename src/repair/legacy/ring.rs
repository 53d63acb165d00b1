//! Changes of the ring by nodes of 0.6: tokens for joining nodes, and removals.

use super::LegacyPeers;
use crate::net::Verb;
use crate::net::bodies::{decode_bootstrap_token, encode_bootstrap_token};
use crate::net::caller::Caller;
use crate::net::message::Message;
use crate::repair::host::RingSnapshot;
use crate::repair::progress::ProgressCounters;
use crate::repair::topology::halving_token;
use crate::repair::transfer::plan::ranges_by_receiver;
use crate::repair::transfer::{Fetcher, WantedRange};
use crate::ring::{Token, TokenMetadata};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most attempts to collect the data of a removed node, and the pause after a failure.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_mins(1);

impl LegacyPeers {
    /// Answers a joining node with the token that halves the load of this node.
    pub(super) fn on_token(self: &Arc<Self>, message: &Message<'_>) {
        let (from, id) = (message.from, message.id.clone());
        let this = Arc::clone(self);
        self.spawn(async move {
            // An error means that the node stops.
            let Ok(token) = halving_token(&this.node).await else { return };
            let body = encode_bootstrap_token(&this.node.partitioner().format_token(&token));
            if let Err(error) = this.node.messenger.reply(from, id, &body) {
                this.complain(from, &error);
            }
        });
    }

    /// Asks the busiest member of 0.6 for the token that halves its load, if it has more data than
    /// this. `None` also if it does not answer with one.
    pub(crate) async fn busier(
        &self,
        look: &RingSnapshot,
        than: Option<f64>,
    ) -> Option<(IpAddr, Token)> {
        let members = look.members.ring.members().map(|(_, endpoint)| endpoint);
        let legacy = members.filter(|it| look.live.contains(it) && look.is_legacy(*it));
        let loads = legacy.map(|it| (it, look.loads.get(&it).copied().unwrap_or_default()));
        let busier = loads.filter(|(_, load)| than.is_none_or(|than| *load > than));
        let (endpoint, _) = busier.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let caller = Caller::new(Arc::clone(&self.node.messenger));
        let answer = caller.call_verb(endpoint, Verb::BootstrapToken, b"").await;
        let token = answer.map_err(|error| error.to_string()).and_then(|body| {
            let text = decode_bootstrap_token(&body).map_err(|error| error.to_string())?;
            self.node.partitioner().parse_token(text).map_err(|error| error.to_string())
        });
        let warn = |why| log::warn!("{endpoint} says no token that would halve its load: {why}");
        token.map_err(warn).ok().map(|token| (endpoint, token))
    }
}

impl Fetcher {
    /// Collects the data of which this node became a replica because a node of 0.6 removed another
    /// one. As in 0.6, each node collects its part after the removal. Until that is done reads at
    /// ONE may find less here. Must be called within a tokio runtime.
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
