//! News of registers whose values all members keep, by gossip.

use super::{Gossip, Member, announce};
use crate::gossip::{EndpointState, REGISTERS_STATE};
use crate::model::key::RowKey;
use std::net::IpAddr;

/// A newer value than this node has followed, and the node that has it.
pub(super) struct News {
    name: RowKey,
    /// The own version.
    version: i64,
    pub(super) from: IpAddr,
}

impl Member {
    /// Announces what this node has followed. Returns what others have that is newer; of several
    /// that have it, one after the other as rounds go by.
    pub(super) fn compare_registers(&self, gossip: &mut Gossip) -> Vec<News> {
        let own = self.coordinator.register_versions();
        let (text, gossiper) = (self.coordinator.announced_registers(), &mut gossip.gossiper);
        let announced = gossiper.state(self.local).and_then(|own| own.value(REGISTERS_STATE));
        if announced.unwrap_or_default() != text {
            announce(gossiper, REGISTERS_STATE, &text);
        }
        let others = || {
            let others = gossiper.endpoints();
            others.filter(|(other, _)| *other != self.local && gossiper.is_alive(*other))
        };
        let announced = others().map(|(other, state)| {
            (other, state.value(REGISTERS_STATE).unwrap_or_default().to_owned())
        });
        self.coordinator.note_registers(announced.collect());
        let news = own.into_iter().filter_map(|(name, version)| {
            let has_newer = |state: &EndpointState| version_of(state, &name) > version;
            let newer = others().filter(|(_, state)| has_newer(state));
            let newer: Vec<IpAddr> = newer.map(|(other, _)| other).collect();
            let round = self.clock.monotonic().as_secs() as usize;
            let from = *newer.get(round.checked_rem(newer.len())?)?;
            Some(News { name, version, from })
        });
        news.collect()
    }

    pub(super) fn learn(&self, news: Vec<News>) {
        for News { name, version, from } in news {
            self.coordinator.learn_register(name, version, from);
        }
    }
}

/// The version of a register that a node announces; 0 if it announces none.
fn version_of(state: &EndpointState, name: &RowKey) -> i64 {
    let texts = state.value(REGISTERS_STATE).unwrap_or_default().split(',');
    let pairs = texts.filter_map(|text| text.rsplit_once(' '));
    let mut versions = pairs.filter(|(it, _)| it.as_bytes() == name.as_bytes());
    versions.next().and_then(|(_, version)| version.parse().ok()).unwrap_or(0)
}
