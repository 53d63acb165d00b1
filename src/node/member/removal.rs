//! The removal of this node itself, by others that could not reach it.

use crate::gossip::{Gossiper, REMOVED_STATE, names_removal};
use std::net::IpAddr;

/// Whether others say that they have removed this node since it was started. Those that are silent
/// by now count as well: if it was cut off anew it is removed all the same.
pub(super) fn is_told(gossiper: &Gossiper, local: IpAddr) -> bool {
    let own = gossiper.generation();
    let others = gossiper.endpoints().filter(|(endpoint, _)| *endpoint != local);
    others
        .filter_map(|(_, state)| state.value(REMOVED_STATE))
        .any(|removed| names_removal(removed, local, own))
}

/// Tells the operator that the others have removed this node, or have taken it back.
pub(super) fn log(is_removed: bool) {
    if is_removed {
        log::error!(
            "this node was removed from the ring, or replaced, while it was cut off: it serves \
             nobody any more, and clients get UnavailableException. What it has may lack writes \
             and deletions of that time. Stop it, and let it bootstrap with empty directories; or \
             take it back as it is by `alexandra nodetool allowreturn` at every other node, and \
             start it anew then"
        );
    } else {
        log::warn!("the other nodes have taken this node back into the ring: it serves again");
    }
}
