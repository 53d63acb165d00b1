//! What gossip tells of how far others may rely on a node as a replica.

use crate::gossip::{Gossiper, READS_STATE};
use crate::replica::Readiness;
use std::net::IpAddr;

/// What a node says under [`READS_STATE`].
pub(super) fn text(readiness: Readiness) -> &'static str {
    match readiness {
        Readiness::Unsure => "unsure",
        Readiness::Placed => "refused",
        // No other node hears of it as long as it is alone.
        Readiness::Alone | Readiness::Complete => "",
    }
}

/// What a node has said. Who says nothing, as those of 0.6 do, can be relied upon.
pub(super) fn of(gossiper: &Gossiper, endpoint: IpAddr) -> Readiness {
    let said = gossiper.state(endpoint).and_then(|state| state.value(READS_STATE));
    let lacking = [Readiness::Unsure, Readiness::Placed];
    lacking.into_iter().find(|it| said == Some(text(*it))).unwrap_or(Readiness::Complete)
}
