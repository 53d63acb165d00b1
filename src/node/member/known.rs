//! What a member knows of the others, and they of it.

use super::MemberOptions;
use crate::gossip::{Gossiper, GossiperOptions, Membership, MembershipChange, Move, RemovedNode};
use crate::storage::system::IdentityError;
use crate::storage::system::saved_ring::{RingNote, SavedRemoval, SavedRing};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Gossip {
    pub(super) gossiper: Gossiper,
    pub(super) membership: Membership,
    /// What this node says of its place; none if it has none.
    pub(super) place: Option<Move>,
    pub(super) has_started: bool,
    /// When this node says once more where it is.
    pub(super) announce_at: Option<Duration>,
    /// What is to be written down as soon as the lock is free.
    pub(super) notes: Vec<RingNote>,
}

impl Gossip {
    /// What the last start has left: nothing was heard yet.
    /// Besides, when the last start noted something last, in milliseconds since 1970.
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
        // A former address of this node, for one.
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
            gossiper.ask_first();
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
