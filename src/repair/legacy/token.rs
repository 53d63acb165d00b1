//! The token that halves the load of a node.

use super::LegacyPeers;
use crate::net::Verb;
use crate::net::bodies::{decode_bootstrap_token, encode_bootstrap_token};
use crate::net::caller::Caller;
use crate::net::message::Message;
use crate::repair::host::RingSnapshot;
use crate::repair::topology::halving_token;
use crate::ring::Token;
use std::net::IpAddr;
use std::sync::Arc;

impl LegacyPeers {
    /// A node that is to join asks where it would take half of the load of this one.
    pub(super) fn on_token(self: &Arc<Self>, message: &Message<'_>) {
        let (from, id) = (message.from, message.id.clone());
        let this = Arc::clone(self);
        self.spawn(async move {
            // The node stops.
            let Ok(token) = halving_token(&this.node).await else { return };
            let body = encode_bootstrap_token(&this.node.partitioner().format_token(&token));
            if let Err(error) = this.node.messenger.reply(from, id, &body) {
                this.complain(from, &error);
            }
        });
    }

    /// Asks the member of 0.6 that has most data for a token, if it has more than these bytes.
    /// None as well if it does not say one.
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
            let token = self.node.partitioner().parse_token(text);
            token.map_err(|error| error.to_string())
        });
        match token {
            Ok(token) => Some((endpoint, token)),
            Err(why) => {
                log::warn!("{endpoint} says no token that would halve its load: {why}");
                None
            }
        }
    }
}
