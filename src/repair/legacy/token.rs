//! The token that halves the load of a node.

use super::LegacyPeers;
use crate::net::Verb;
use crate::net::bodies::{decode_bootstrap_token, encode_bootstrap_token};
use crate::net::caller::Caller;
use crate::net::message::Message;
use crate::repair::calls::Halving;
use crate::repair::halving::halving_token;
use crate::repair::host::{Host, RingSnapshot};
use std::net::IpAddr;
use std::sync::Arc;

impl LegacyPeers {
    /// A node that is to join asks where it would take half of the load of this one.
    pub(super) fn on_token(self: &Arc<Self>, message: &Message<'_>, host: &Arc<dyn Host>) {
        let (from, id) = (message.from, message.id.clone());
        let (this, host) = (Arc::clone(self), Arc::clone(host));
        self.spawn(async move {
            let storage = Arc::clone(&this.storage);
            let Ok(token) = this.blocking.run(move || halving_token(&storage, &*host)).await else {
                return;
            };
            let text = this.storage.partitioner().format_token(&token);
            if let Err(error) = this.messenger.reply(from, id, &encode_bootstrap_token(&text)) {
                this.complain(from, &error);
            }
        });
    }

    /// Asks the member of 0.6 that has most data for a token, if it has more than so many bytes.
    /// None as well if it does not say one.
    pub(in crate::repair) async fn busier(
        &self,
        look: &RingSnapshot,
        than: Option<f64>,
    ) -> Option<(IpAddr, Halving)> {
        let members = look.members.ring.members().map(|(_, endpoint)| endpoint);
        let legacy = members.filter(|it| look.live.contains(it) && look.is_legacy(*it));
        let loads = legacy.map(|it| (it, look.loads.get(&it).copied().unwrap_or_default()));
        let busier = loads.filter(|(_, load)| than.is_none_or(|than| *load > than));
        let (endpoint, load) = busier.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let caller = Caller::new(Arc::clone(&self.messenger));
        let answer = caller.call_verb(endpoint, Verb::BootstrapToken, b"").await;
        let token = answer.map_err(|error| error.to_string()).and_then(|body| {
            let text = decode_bootstrap_token(&body).map_err(|error| error.to_string())?;
            let token = self.storage.partitioner().parse_token(text);
            token.map_err(|error| error.to_string())
        });
        match token {
            Ok(token) => Some((endpoint, Halving { load, token })),
            Err(why) => {
                log::warn!("{endpoint} says no token that would halve its load: {why}");
                None
            }
        }
    }
}
