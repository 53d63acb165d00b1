//! What a gossiper knows of another endpoint.

use super::super::EXTENSIONS_STATE;
use super::super::endpoint_state::{EndpointState, VersionedValue};
use std::time::Duration;

/// Rounds in which all is asked for of an endpoint that does not say what it understands. It is an
/// original, or an answer to an earlier start of this node made it known.
const DOUBTFUL_ROUNDS: u32 = 10;

/// What is known of another endpoint.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) state: EndpointState,
    pub(super) is_alive: bool,
    /// The newest generation and version that a digest has listed.
    pub(super) listed: (i32, i32),
    /// When there were news last.
    pub(super) updated: Duration,
    /// Rounds in which all of it is still asked for again.
    doubts: u32,
}

impl Peer {
    /// An endpoint that becomes known by this.
    pub(super) fn new(state: EndpointState, is_alive: bool, now: Duration) -> Self {
        let doubts = if state.value(EXTENSIONS_STATE).is_some() { 0 } else { DOUBTFUL_ROUNDS };
        Self { listed: state.age(), state, is_alive, updated: now, doubts }
    }

    pub(super) fn end_round(&mut self) {
        self.doubts = self.doubts.saturating_sub(1);
    }

    /// The generation and version up to which all is known.
    pub(super) fn known_age(&self) -> (i32, i32) {
        if self.doubts > 0 { (self.state.generation, 0) } else { self.state.age() }
    }

    /// Whether news may have what is not known. Those of the same age do as long as there is doubt.
    pub(super) fn lacks(&self, news: &EndpointState) -> bool {
        let (known, news) = (self.state.age(), news.age());
        news > known || self.doubts > 0 && news == known
    }

    /// Takes over what is newer in news of the same generation, see [`EndpointState::merge`].
    pub(super) fn merge(&mut self, news: &EndpointState) -> Vec<(String, VersionedValue)> {
        let changed = self.state.merge(news);
        if self.state.value(EXTENSIONS_STATE).is_some() {
            self.doubts = 0;
        }
        changed
    }
}
