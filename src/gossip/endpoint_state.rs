//! The state of one endpoint.

use super::{MOVE_STATE, PLAN_STATE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An application state: a text of an endpoint about itself, and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionedValue {
    /// The text.
    pub value: String,
    /// The endpoint's counter when the text was set.
    pub version: i32,
}

/// The known state of an endpoint.
///
/// Within one generation, from one start of the endpoint to the next, one counter numbers its
/// heartbeats and states. So the greatest known version is a position in the endpoint's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointState {
    /// Grows with every start of the endpoint; mostly the time of the start in seconds since 1970.
    pub generation: i32,
    /// The version of the latest heartbeat.
    pub heartbeat: i32,
    /// The application states by their names.
    pub states: BTreeMap<String, VersionedValue>,
}

impl EndpointState {
    /// The state at the start of an endpoint.
    pub fn new(generation: i32) -> Self {
        Self { generation, heartbeat: 0, states: BTreeMap::new() }
    }

    /// The greatest version of heartbeat and states.
    pub fn max_version(&self) -> i32 {
        self.states.values().map(|state| state.version).fold(self.heartbeat, i32::max)
    }

    /// Generation and greatest version, the order of two states of one endpoint.
    pub fn age(&self) -> (i32, i32) {
        (self.generation, self.max_version())
    }

    /// Counts a heartbeat of the endpoint itself.
    pub fn beat(&mut self) {
        self.heartbeat = self.next_version();
    }

    /// Sets a state of the endpoint itself.
    pub fn set(&mut self, name: &str, value: &str) {
        let state = VersionedValue { value: value.to_owned(), version: self.next_version() };
        self.states.insert(name.to_owned(), state);
    }

    /// The text of a state.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.states.get(name).map(|state| state.value.as_str())
    }

    /// Whether the endpoint announces a place on the ring: a present, future or former one. Clients
    /// that only take part in gossip do not.
    pub(super) fn tells_of_place(&self) -> bool {
        [MOVE_STATE, PLAN_STATE].iter().any(|name| self.states.contains_key(*name))
    }

    /// The part that is newer than a version: the heartbeat, and newer states. `None` if nothing is
    /// newer.
    pub fn newer_than(&self, version: i32) -> Option<Self> {
        if self.max_version() <= version {
            return None;
        }
        let newer = self.states.iter().filter(|(_, state)| state.version > version);
        let states = newer.map(|(name, state)| (name.clone(), state.clone())).collect();
        Some(Self { states, ..*self })
    }

    /// The part that is newer than a version of a generation: everything for an older generation.
    pub(super) fn newer_than_age(&self, (generation, version): (i32, i32)) -> Option<Self> {
        self.newer_than(if generation == self.generation { version } else { 0 })
    }

    /// The states in the order in which the endpoint set them.
    pub fn in_version_order(&self) -> Vec<(String, VersionedValue)> {
        let mut states: Vec<_> = self.states.clone().into_iter().collect();
        states.sort_by_key(|(_, state)| state.version);
        states
    }

    /// Merges news of the same generation. Returns the changed states, in the order in which the
    /// endpoint set them.
    pub(super) fn merge(&mut self, news: &Self) -> Vec<(String, VersionedValue)> {
        self.heartbeat = self.heartbeat.max(news.heartbeat);
        let mut changed = Vec::new();
        for (name, state) in news.in_version_order() {
            if self.states.get(&name).is_none_or(|known| known.version < state.version) {
                self.states.insert(name.clone(), state.clone());
                changed.push((name, state));
            }
        }
        changed
    }

    /// A version above all others. With one a second, the counter lasts for 68 years.
    fn next_version(&self) -> i32 {
        self.max_version().saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_counter_numbers_heartbeats_and_states() {
        let mut state = EndpointState::new(7);
        assert_eq!(state.age(), (7, 0));
        state.set("MOVE", "a");
        state.beat();
        state.set("LOAD-INFORMATION", "1.0");
        state.set("MOVE", "b");
        assert_eq!((state.heartbeat, state.max_version()), (2, 4));
        let order = state.in_version_order();
        let order: Vec<_> = order.iter().map(|(n, s)| (n.as_str(), s.version)).collect();
        assert_eq!(order, [("LOAD-INFORMATION", 3), ("MOVE", 4)]);
        assert_eq!(state.value("MOVE"), Some("b"));
    }

    #[test]
    fn a_delta_has_the_heartbeat_and_newer_states() {
        let mut state = EndpointState::new(7);
        state.set("MOVE", "a");
        state.beat();
        state.set("X", "x");
        assert_eq!(state.newer_than(0), Some(state.clone()));
        let delta = state.newer_than(2).unwrap();
        assert_eq!((delta.heartbeat, delta.value("MOVE"), delta.value("X")), (2, None, Some("x")));
        assert_eq!(state.newer_than(3), None);
    }

    #[test]
    fn news_are_merged_state_by_state() {
        let mut origin = EndpointState::new(7);
        origin.set("MOVE", "a");
        let mut copy = origin.clone();
        origin.beat();
        origin.set("X", "x");
        origin.set("MOVE", "b");
        let old = copy.clone();
        let changed = copy.merge(&origin);
        assert_eq!(
            changed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["X", "MOVE"]
        );
        assert_eq!(copy, origin);
        assert!(copy.merge(&old).is_empty());
        assert_eq!(copy, origin);
    }
}
