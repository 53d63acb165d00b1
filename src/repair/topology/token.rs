//! Choice of the token of a new node: it takes half of the load of another.

use crate::base::context::RequestContext;
use crate::repair::calls::WHICH_TOKEN;
use crate::repair::error::{OperationError, Result};
use crate::repair::host::{Node, RingSnapshot};
use crate::repair::operations::Operations;
use crate::ring::{RowSamples, Token, TokenRange};
use std::net::IpAddr;
use std::sync::Arc;

/// The token that halves the load of the primary range of this node, like 0.6's answer to
/// BOOTSTRAP_TOKEN: one with half of the rows on each side, or the middle of the range.
pub(crate) async fn halving_token(node: &Node) -> Result<Token> {
    let own = node.look()?.members.ring.primary_range(node.local());
    let range = own.unwrap_or(TokenRange { start: Token::Minimum, end: Token::Minimum });
    let half_of_the_range = node.partitioner().midpoint(&range.start, &range.end);
    let storage = Arc::clone(&node.storage);
    let sample = move || storage.row_samples(range, &RequestContext::default());
    let samples = node.run(sample).await;
    Ok(samples.ok().and_then(RowSamples::middle).unwrap_or(half_of_the_range))
}

impl Operations {
    /// The token that halves the load of the busiest member.
    pub(super) async fn balanced_token(&self, look: &RingSnapshot) -> Result<Token> {
        let mut best: Option<(IpAddr, f64, Token)> = None;
        let mut why = String::new();
        for (_, endpoint) in look.members.ring.members() {
            if !look.live.contains(&endpoint) || !look.callable.contains(&endpoint) {
                continue;
            }
            let is_busier = |load: f64| best.as_ref().is_none_or(|(_, most, _)| load > *most);
            match self.service.ask::<(f64, Token)>(endpoint, WHICH_TOKEN, &()).await {
                Ok((load, token)) if is_busier(load) => best = Some((endpoint, load, token)),
                Ok(_) => {}
                Err(error) => why = error.to_string(),
            }
        }
        let load = best.as_ref().map(|(_, load, _)| *load);
        let busier = self.legacy.busier(look, load).await;
        let Some((endpoint, token)) = busier.or(best.map(|(endpoint, _, token)| (endpoint, token)))
        else {
            return Err(OperationError::Failed(format!(
                "no member has said at which token to join: give this node an InitialToken. {why}"
            )));
        };
        let text = self.node.partitioner().format_token(&token);
        log::info!("New token will be {text} to assume load from /{endpoint}");
        Ok(token)
    }
}
