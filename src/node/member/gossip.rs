//! The state of gossip, and what it says about the readiness and removal of nodes.

use super::MemberOptions;
use crate::gossip::{
    Gossiper, GossiperOptions, Members, Membership, MembershipChange, Move, READS_STATE,
    REMOVED_STATE, RemovedNode, names_removal,
};
use crate::replica::Readiness;
use crate::storage::system::IdentityError;
use crate::storage::system::saved_ring::{RingNote, SavedRemoval, SavedRing};
use std::net::IpAddr;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Gossip {
    pub(super) gossiper: Gossiper,
    pub(super) membership: Membership,
    /// The announced place of this node.
    pub(super) place: Option<Move>,
    pub(super) has_started: bool,
    /// Time at which this node repeats the announcement of its place.
    pub(super) announce_at: Option<Duration>,
    /// Notes to save as soon as the lock is free.
    pub(super) notes: Vec<RingNote>,
}

impl Gossip {
    /// The state that the last start has saved, and the time of its last note in milliseconds since
    /// 1970.
    pub(super) fn new(options: &MemberOptions) -> Result<(Self, u64), IdentityError> {
        let MemberOptions { local, storage, clock, generation, .. } = options;
        let partitioner = storage.partitioner();
        let SavedRing { members, removed, returned, noted_millis } = SavedRing::read(storage)?;
        let removed = removed.into_iter().map(|saved| {
            let SavedRemoval { endpoint, token, generation, may_return } = saved;
            RemovedNode { endpoint, token, generation, may_return }
        });
        let is_replaced = |it: &RemovedNode| {
            let replaced = options.replaced.as_ref();
            replaced.is_some_and(|node| node.endpoint == it.endpoint && node.token == it.token)
        };
        let removed = removed.filter(|it| !is_replaced(it));
        let mut membership = Membership::new(partitioner, *local, *generation, removed);
        membership.remember_returned(returned);
        membership.preload(members);
        let token = options.token.clone();
        let place = token.map(|token| Move::Normal { token, removed: None });
        let changes = place.as_ref().map(|place| membership.announce(place)).unwrap_or_default();
        // Such as a former address of this node.
        let notes = changes.into_iter().filter_map(|change| match change {
            MembershipChange::ForgetToken { endpoint } => Some(RingNote::OwnsNothing(endpoint)),
            _ => None,
        });
        let gossiper_options = GossiperOptions {
            local: *local,
            cluster_name: options.cluster_name.clone(),
            partitioner,
            seeds: options.seeds.clone(),
            generation: *generation,
            phi_convict_threshold: options.phi_convict_threshold,
            now_secs: i64::from(clock.now_secs()),
        };
        let rng = fastrand::Rng::with_seed(options.seed);
        let mut gossiper = Gossiper::new(gossiper_options, rng, clock.monotonic());
        if options.asks_first {
            gossiper.question.ask();
        }
        gossiper.preload(membership.members().endpoints());
        let gossip = Self {
            gossiper,
            membership,
            place,
            has_started: false,
            announce_at: None,
            notes: notes.collect(),
        };
        Ok((gossip, noted_millis))
    }
}

/// The value of [`READS_STATE`].
pub(super) fn readiness_text(readiness: Readiness) -> &'static str {
    match readiness {
        Readiness::Unsure => "unsure",
        Readiness::Placed => "refused",
        // No other node hears of it as long as it is alone.
        Readiness::Alone | Readiness::Complete => "",
    }
}

/// The announced readiness of a node. One that announces none, such as one of 0.6, is complete.
pub(super) fn readiness_of(gossiper: &Gossiper, endpoint: IpAddr) -> Readiness {
    let said = gossiper.state(endpoint).and_then(|state| state.value(READS_STATE));
    let lacking = [Readiness::Unsure, Readiness::Placed];
    let found = lacking.into_iter().find(|it| said == Some(readiness_text(*it)));
    found.unwrap_or(Readiness::Complete)
}

/// Whether a member names this start of the node as removed. A member that is silent now counts as
/// well: this node stays removed if it is cut off again. Endpoints without a place do not count.
pub(super) fn is_told_of_removal(gossiper: &Gossiper, members: &Members, local: IpAddr) -> bool {
    let is_other = |it: IpAddr| it != local && members.is_member(it);
    let others = gossiper.endpoints().filter(|(endpoint, _)| is_other(*endpoint));
    others
        .filter_map(|(_, state)| state.value(REMOVED_STATE))
        .any(|removed| names_removal(removed, local, gossiper.generation()))
}
