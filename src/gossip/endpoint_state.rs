//! What is known of one endpoint.

use super::{MOVE_STATE, PLAN_STATE};
use std::collections::BTreeMap;

/// A text that an endpoint says of itself, and when it said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedValue {
    /// The text.
    pub value: String,
    /// The count of the endpoint's counter at which it said so.
    pub version: i32,
}

/// What an endpoint says of itself, as far as it is known.
///
/// Within one generation, that is from one start of the endpoint to the next, one counter numbers
/// its heartbeats and its states. So the greatest version tells how much of it somebody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointState {
    /// Grows with every start of the endpoint; in most cases the seconds since 1970 of the start.
    pub generation: i32,
    /// The version of the latest heartbeat.
    pub heartbeat: i32,
    /// The application states by their names.
    pub states: BTreeMap<String, VersionedValue>,
}

impl EndpointState {
    /// An endpoint at its start.
    pub fn new(generation: i32) -> Self {
        Self { generation, heartbeat: 0, states: BTreeMap::new() }
    }

    /// The greatest of all versions, heartbeat and states.
    pub fn max_version(&self) -> i32 {
        self.states.values().map(|state| state.version).fold(self.heartbeat, i32::max)
    }

    /// How new this is: generation, then greatest version.
    pub fn age(&self) -> (i32, i32) {
        (self.generation, self.max_version())
    }

    /// The next heartbeat, of the endpoint itself.
    pub fn beat(&mut self) {
        self.heartbeat = self.next_version();
    }

    /// The endpoint itself says something new.
    pub fn set(&mut self, name: &str, value: &str) {
        let state = VersionedValue { value: value.to_owned(), version: self.next_version() };
        self.states.insert(name.to_owned(), state);
    }

    /// The text of a state.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.states.get(name).map(|state| state.value.as_str())
    }

    /// Whether the endpoint says anything about a place on the ring: its own, one that it is to
    /// have, or one that it had. Clients that only take part in gossip do not.
    pub(super) fn tells_of_place(&self) -> bool {
        [MOVE_STATE, PLAN_STATE].iter().any(|name| self.states.contains_key(*name))
    }

    /// What somebody does not know who knows it up to a version: the heartbeat always, and the
    /// states that are newer. None if nothing is.
    pub fn newer_than(&self, version: i32) -> Option<Self> {
        if self.max_version() <= version {
            return None;
        }
        let newer = self.states.iter().filter(|(_, state)| state.version > version);
        let states = newer.map(|(name, state)| (name.clone(), state.clone())).collect();
        Some(Self { states, ..*self })
    }

    /// What somebody does not know who knows it up to a version of a generation; of an older
    /// generation than this all.
    pub(super) fn newer_than_age(&self, (generation, version): (i32, i32)) -> Option<Self> {
        self.newer_than(if generation == self.generation { version } else { 0 })
    }

    /// The states in the order in which the endpoint set them.
    pub fn in_version_order(&self) -> Vec<(&str, &VersionedValue)> {
        let mut states: Vec<_> = self.states.iter().map(|(name, s)| (name.as_str(), s)).collect();
        states.sort_by_key(|(_, state)| state.version);
        states
    }

    /// Takes over what is newer in news of the same generation. Returns the states among it, in
    /// the order in which the endpoint set them.
    pub(super) fn merge(&mut self, news: &Self) -> Vec<(String, VersionedValue)> {
        self.heartbeat = self.heartbeat.max(news.heartbeat);
        let mut changed = Vec::new();
        for (name, state) in news.in_version_order() {
            if self.states.get(name).is_none_or(|known| known.version < state.version) {
                self.states.insert(name.to_owned(), state.clone());
                changed.push((name.to_owned(), state.clone()));
            }
        }
        changed
    }

    /// One beyond all versions. At one for each second a counter lasts for 68 years.
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
        let order: Vec<_> = state.in_version_order().iter().map(|(n, s)| (*n, s.version)).collect();
        assert_eq!(order, [("LOAD-INFORMATION", 3), ("MOVE", 4)]);
        assert_eq!(state.value("MOVE"), Some("b"));
    }

    #[test]
    fn a_delta_has_the_heartbeat_and_what_is_newer() {
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
