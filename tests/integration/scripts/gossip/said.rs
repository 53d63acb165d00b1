//! States that nodes say of themselves in a script, whether they run or not.

use alexandra::gossip::{
    EXTENSIONS_STATE, EndpointState, LOAD_STATE, MOVE_STATE, PLAN_STATE, READS_STATE,
    REMOVED_STATE, VersionedValue,
};
use std::collections::BTreeMap;

/// States by the names that scripts use for them.
pub(in crate::scripts) type States = [(String, String)];

/// Everything that nodes were said to have announced, by node.
#[derive(Default)]
pub(in crate::scripts) struct Said(BTreeMap<u8, EndpointState>);

impl Said {
    /// The state of a node that says this, or beats. With a version of its own it is what the node
    /// said then, and nothing else.
    pub(in crate::scripts) fn say(
        &mut self,
        node: u8,
        generation: Option<i32>,
        at: Option<i32>,
        states: &States,
    ) -> EndpointState {
        let last = self.0.get(&node).map_or(100, |said| said.generation);
        let generation = generation.unwrap_or(last);
        let fresh = EndpointState::new(generation);
        let known = self.0.get(&node).filter(|said| said.generation == generation).cloned();
        let mut state = known.unwrap_or_else(|| fresh.clone());
        if at.is_none() && states.is_empty() {
            state.beat();
        }
        let mut only_then = fresh;
        only_then.heartbeat = at.unwrap_or_default();
        for (name, value) in states {
            let (name, value) = (expand(state_name(name)), expand(value));
            if let Some(version) = at {
                let value = VersionedValue { value, version };
                only_then.states.insert(name.clone(), value.clone());
                if version >= state.max_version() {
                    state.states.insert(name, value);
                }
            } else {
                state.set(&name, &value);
            }
        }
        state.heartbeat = state.heartbeat.max(at.unwrap_or_default());
        if generation >= last {
            self.0.insert(node, state.clone());
        }
        if at.is_some() { only_then } else { state }
    }
}

/// The full name of a state.
pub(in crate::scripts) fn state_name(name: &str) -> &str {
    match name {
        "MOVE" => MOVE_STATE,
        "LOAD" => LOAD_STATE,
        "PLAN" => PLAN_STATE,
        "REMOVED" => REMOVED_STATE,
        "READS" => READS_STATE,
        "EXTENSIONS" => EXTENSIONS_STATE,
        _ => name,
    }
}

/// A value, in which `x*9` stands for nine times `x`.
pub(in crate::scripts) fn expand(value: &str) -> String {
    let repeated = value.split_once('*').and_then(|(x, n)| Some(x.repeat(n.parse().ok()?)));
    repeated.unwrap_or_else(|| value.to_owned())
}
