//! The member as seen by operations on the ring.

use super::{Gossip, Member, announce};
use crate::gossip::{GossipEvent, MOVE_STATE, NodePlace, PLAN_STATE, Plan};
use crate::model::key::RowKey;
use crate::net::extensions;
use crate::repair::{Announced, Host, Lifecycle, RingSnapshot};
use crate::replica::Readiness;
use crate::ring::TokenMetadata;
use crate::schema::REGISTER_NAME;
use log::Level;
use std::net::IpAddr;

/// Separates, in `MOVE` of a node of 0.6 that removed another one, the token of that one.
const REMOVAL: &str = ",remove,";

impl Host for Member {
    fn look(&self) -> RingSnapshot {
        let gossip = self.lock();
        let Gossip { gossiper, membership, .. } = &*gossip;
        let known = || gossiper.endpoints().map(|(endpoint, _)| endpoint);
        RingSnapshot {
            members: membership.members().clone(),
            live: known().filter(|it| gossiper.is_alive(*it)).collect(),
            callable: known().filter(|it| gossiper.announces(*it, extensions::CALLS)).collect(),
            loads: known().filter_map(|it| Some((it, gossiper.load(it)?))).collect(),
            incomplete: self.incomplete(&gossip),
            generations: gossiper.endpoints().map(|(it, state)| (it, state.generation)).collect(),
            given_up: membership.given_up(),
            remembered: gossiper.question.remembered().cloned(),
            is_hidden: gossiper.question.is_open(),
            local: Some(self.local),
        }
    }

    fn announce(&self, place: &Lifecycle) {
        let mut gossip = self.lock();
        let was_member = gossip.membership.members().is_member(self.local);
        let (own, plan) = place.announced(self.local, was_member);
        match place {
            Lifecycle::First(_) => {
                gossip.gossiper.question.keep_asking();
                self.readiness.raise(Readiness::Alone);
                self.announce_readiness(&mut gossip);
            }
            _ => gossip.gossiper.question.close(),
        }
        if let Lifecycle::Joining(_) | Lifecycle::Replacing(_) = place
            && self.readiness.get() < Readiness::Complete
        {
            // For others it is only a future replica.
            self.readiness.raise(Readiness::Placed);
            self.announce_readiness(&mut gossip);
        }
        let mut changes = gossip.membership.announce_plan(plan.as_ref());
        if let Some(own) = &own {
            changes.extend(gossip.membership.announce(own));
        }
        gossip.place.clone_from(&own);
        let mut is_changed = false;
        for change in changes {
            is_changed |= self.follow(&mut gossip, self.local, change);
        }
        self.announce_plan(&mut gossip, plan.as_ref());
        self.announce_place(&mut gossip);
        if is_changed {
            self.tell_of_ring(&mut gossip);
        }
        self.write_notes(gossip);
    }

    fn learn(&self, members: &[NodePlace]) {
        let mut gossip = self.lock();
        let mut is_changed = false;
        for NodePlace { endpoint, token } in members {
            if gossip.gossiper.has_heard_of(*endpoint) {
                continue;
            }
            let changes = gossip.membership.learn(*endpoint, token);
            if changes.is_empty() {
                continue;
            }
            let line =
                format_args!("others know {endpoint} as a member, of which nothing was heard");
            self.messenger.log(Level::Info, *endpoint, line);
            gossip.gossiper.preload([*endpoint]);
            for change in changes {
                is_changed |= self.follow(&mut gossip, *endpoint, change);
            }
        }
        if is_changed {
            self.tell_of_ring(&mut gossip);
        }
        self.write_notes(gossip);
    }

    fn be_placed(&self) {
        let mut gossip = self.lock();
        gossip.gossiper.question.close();
        self.readiness.raise(Readiness::Placed);
        self.announce_readiness(&mut gossip);
    }

    fn serve_reads(&self) {
        let mut gossip = self.lock();
        self.readiness.raise(Readiness::Complete);
        self.announce_readiness(&mut gossip);
        self.publish(&gossip);
    }

    fn settle(&self) {
        let mut gossip = self.lock();
        let plan = gossip.membership.members().plans.get(&self.local);
        if !matches!(plan, Some(Plan::Arrived(_) | Plan::Gone(_))) {
            return;
        }
        for change in gossip.membership.announce_plan(None) {
            self.follow(&mut gossip, self.local, change);
        }
        self.announce_plan(&mut gossip, None);
        self.tell_of_ring(&mut gossip);
        self.write_notes(gossip);
    }

    fn said(&self) -> Announced {
        let gossip = self.lock();
        let gossiper = &gossip.gossiper;
        let state = gossiper.state(self.local);
        let version = state.and_then(|it| it.states.values().map(|state| state.version).max());
        Announced { generation: gossiper.generation(), version: version.unwrap_or_default() }
    }

    fn has_heard(&self, of: IpAddr, announced: Announced) -> bool {
        let gossip = self.lock();
        let known = gossip.gossiper.state(of);
        let Announced { generation, version } = announced;
        known.is_some_and(|it| it.generation == generation && it.max_version() >= version)
    }

    fn turns_away(&self, from: IpAddr) -> Option<&'static str> {
        self.coordinator.turns_away(from)
    }

    fn schema(&self) -> u64 {
        let versions = self.coordinator.register_versions();
        versions.get(&RowKey::from(REGISTER_NAME)).map_or(0, |version| *version as u64)
    }

    fn is_quiet(&self) -> bool {
        self.coordinator.is_quiet()
    }
}

impl Member {
    /// A removal by a node of 0.6: the node that announced it, and the ring before.
    pub(super) fn removal_by_original(
        gossip: &Gossip,
        event: &GossipEvent,
    ) -> Option<(IpAddr, TokenMetadata)> {
        let GossipEvent::StateChanged { endpoint, name, state, .. } = event else { return None };
        let is_removal = name == MOVE_STATE && state.value.contains(REMOVAL);
        if !is_removal || gossip.gossiper.announces(*endpoint, extensions::CALLS) {
            return None;
        }
        Some((*endpoint, gossip.membership.members().ring.clone()))
    }

    /// Collects the data that this node must have since a node of 0.6 removed another one.
    pub(super) fn restore(&self, gossip: &Gossip, by: IpAddr, before: &TokenMetadata) {
        let after = &gossip.membership.members().ring;
        if before != after {
            self.operations.restore(by, before, after);
        }
    }

    fn announce_plan(&self, gossip: &mut Gossip, plan: Option<&Plan>) {
        let partitioner = self.storage.partitioner();
        let value = plan.map_or_else(String::new, |plan| plan.format(partitioner));
        let known = gossip.gossiper.state(self.local).and_then(|state| state.value(PLAN_STATE));
        if known.unwrap_or_default() != value {
            announce(&mut gossip.gossiper, PLAN_STATE, &value);
        }
    }

    /// Announces the place of this node, if it has one.
    pub(super) fn announce_place(&self, gossip: &mut Gossip) {
        let Some(place) = &gossip.place else { return };
        let place = place.format(self.storage.partitioner());
        announce(&mut gossip.gossiper, MOVE_STATE, &place);
    }
}
