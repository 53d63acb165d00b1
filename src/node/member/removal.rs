//! The removal of this node itself, by others that could not reach it.

use crate::base::limited_log::LimitedLog;
use crate::gossip::{Gossiper, Members, REMOVED_STATE, names_removal};
use log::Level;
use std::net::IpAddr;

/// Whether a member says that this start of this node was removed. One that is silent now counts as
/// well: this node stays removed if it is cut off again. Endpoints without a place have no say.
pub(super) fn is_told(gossiper: &Gossiper, members: &Members, local: IpAddr) -> bool {
    let own = gossiper.generation();
    let is_other = |it: IpAddr| it != local && members.is_member(it);
    let others = gossiper.endpoints().filter(|(endpoint, _)| is_other(*endpoint));
    others
        .filter_map(|(_, state)| state.value(REMOVED_STATE))
        .any(|removed| names_removal(removed, local, own))
}

/// Tells the operator that the others have removed this node, or have taken it back.
pub(super) fn log(own_log: &LimitedLog<&'static str>, is_removed: bool) {
    let (level, line) = if is_removed {
        let line = "this node was removed from the ring, or replaced, while it was cut off: it \
                    serves nobody any more, and clients get UnavailableException. What it has may \
                    lack writes and deletions of that time. Stop it, and let it bootstrap with \
                    empty directories; or take it back as it is by `alexandra nodetool \
                    allowreturn` at every other node, and restart it then";
        (Level::Error, line)
    } else {
        let line = "the other nodes have taken this node back into the ring: it serves again";
        (Level::Warn, line)
    };
    own_log.log(level, "removal", format_args!("{line}"));
}
