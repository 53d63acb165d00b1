//! The generation of this node, and its acceptance by other nodes.

use super::{Gossiper, MAX_AHEAD_SECS, RING_DELAY};
use crate::base::utc::UtcTime;
use crate::gossip::GossipEvent;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Allowance for the difference of two clocks. A node raises its generation above one that others
/// remember, though by its own clock they should not have accepted it.
pub(super) const CLOCK_DIFFERENCE_SECS: i64 = 24 * 3600;

/// Seconds that a generation is at most ahead of the clock after a start with a correct clock.
const MAX_START_AHEAD_SECS: i64 = 60;

/// Time for which a node must be refused before it lowers its generation. Nodes that have accepted
/// it have shown that by then.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(10);

/// A conflict between the generation of this node and the nodes that should accept it.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum GenerationConflict {
    /// Other nodes remember a generation that this node must not exceed, and ignore it.
    #[display(
        "Other nodes remember generation {remembered} of this node, which is ahead of its clock: \
         they ignore this node until {}. Set the clock, or wait until then; or stop all other \
         nodes at one time, which makes them forget it",
        UtcTime::of_secs(*until_secs)
    )]
    Ahead {
        /// The generation that they remember.
        remembered: i32,
        /// When they listen again, in seconds since 1970, unless they forget it before.
        until_secs: i64,
    },
    /// Other nodes refuse the generation of this node as impossible, and ignore it.
    #[display(
        "/{by} takes this node for dead, as it may do with others, since it refuses generation \
         {generation} of this node, that of a start on {}: {}",
        UtcTime::of_secs(i64::from(*generation)),
        if *is_clock_right {
            "the clock was wrong at an earlier start. This node lowers its generation, unless \
             other nodes have accepted it: then stop those at one time"
        } else {
            "the clock of this node or of that one is wrong. Set it and restart that node"
        }
    )]
    Refused {
        /// The generation of this node.
        generation: i32,
        /// A node that refuses it.
        by: IpAddr,
        /// Whether the generation is also ahead of this node's clock: the clock was wrong at an
        /// earlier start.
        is_clock_right: bool,
    },
}

/// Acceptance of this node's generation by others.
#[derive(Debug, Default)]
pub(super) struct Acceptance {
    /// Refusing nodes: the newest generation that each knows, and the time of its last refusal.
    refused_by: BTreeMap<IpAddr, (i32, Duration)>,
    refused_since: Option<Duration>,
    /// Time of the last sign that a node knows this generation.
    accepted_at: Option<Duration>,
    changed_at: Option<Duration>,
    /// The remembered generation that this node must not exceed, and the time of the last message
    /// with it.
    ahead: Option<(i32, Duration)>,
}

impl Acceptance {
    fn changed(now: Duration) -> Self {
        Self { changed_at: Some(now), ..Self::default() }
    }

    fn expire(&mut self, now: Duration) {
        let is_recent = |at: Duration| now.saturating_sub(at) <= RING_DELAY;
        self.refused_by.retain(|_, (_, at)| is_recent(*at));
        self.accepted_at = self.accepted_at.filter(|at| is_recent(*at));
        self.ahead = self.ahead.filter(|(_, at)| is_recent(*at));
        if self.refused_by.is_empty() {
            self.refused_since = None;
        }
    }
}

impl Gossiper {
    /// The present conflict about this node's generation.
    pub fn generation_conflict(&self) -> Option<GenerationConflict> {
        if let Some((remembered, _)) = self.acceptance.ahead {
            let until_secs = i64::from(remembered) + 1 - MAX_AHEAD_SECS - CLOCK_DIFFERENCE_SECS;
            return Some(GenerationConflict::Ahead { remembered, until_secs });
        }
        let by = *self.acceptance.refused_by.keys().next()?;
        let generation = self.own.generation;
        let is_clock_right = self.is_ahead_of_clock();
        Some(GenerationConflict::Refused { generation, by, is_clock_right })
    }

    /// Whether some nodes ignore this one because of its generation.
    pub fn is_refused(&self) -> bool {
        !self.acceptance.refused_by.is_empty()
    }

    fn report_conflict(&mut self) {
        let conflict = self.generation_conflict();
        self.effects.events.extend(conflict.map(GossipEvent::GenerationConflict));
    }

    /// Takes the generation and version of this node that another node remembers. If they are of an
    /// earlier life, that node ignores this one until its generation is greater.
    pub(super) fn hear_of_self(&mut self, from: IpAddr, remembered: (i32, i32)) {
        if remembered <= self.own.age() {
            if remembered.0 == self.own.generation {
                self.accept_self(from);
            }
            return;
        }
        let needed = i64::from(remembered.0) + 1;
        match i32::try_from(needed) {
            Ok(generation)
                if needed <= self.time_secs() + MAX_AHEAD_SECS + CLOCK_DIFFERENCE_SECS =>
            {
                self.acceptance = Acceptance::changed(self.now);
                self.own.generation = generation;
                self.effects.events.push(GossipEvent::OwnGenerationRaised(generation));
            }
            _ => {
                let before = self.acceptance.ahead.replace((remembered.0, self.now));
                if before.is_none_or(|(before, _)| before != remembered.0) {
                    self.report_conflict();
                }
            }
        }
    }

    /// Notes that another node knows this generation.
    pub(super) fn accept_self(&mut self, from: IpAddr) {
        self.acceptance.refused_by.remove(&from);
        self.acceptance.accepted_at = Some(self.now);
    }

    /// Takes an answer with nothing but an older generation of this node: the sender refuses the
    /// present one. Just after a change it may answer a message from before.
    pub(super) fn refuse_self(&mut self, from: IpAddr, known: i32) {
        let is_recent = |at| self.now.saturating_sub(at) < REFUSAL_PATIENCE;
        let may_be_late = self.acceptance.changed_at.is_some_and(is_recent);
        if known >= self.own.generation || may_be_late || !self.is_alive(from) {
            return;
        }
        self.acceptance.refused_by.insert(from, (known, self.now));
        if self.acceptance.refused_since.is_none() {
            self.acceptance.refused_since = Some(self.now);
            self.report_conflict();
        }
    }

    /// Lowers the generation if others refuse it, none has accepted it, and this node's clock
    /// agrees with them: the node was started once when its clock was wrong.
    pub(super) fn review_generation(&mut self) {
        let was_refused = self.acceptance.refused_since.is_some();
        self.acceptance.expire(self.now);
        let Acceptance { refused_by, refused_since, accepted_at, .. } = &self.acceptance;
        if was_refused && refused_by.is_empty() {
            self.effects.events.push(GossipEvent::OwnGenerationAccepted);
        }
        let is_over =
            refused_since.is_some_and(|at| self.now.saturating_sub(at) >= REFUSAL_PATIENCE);
        if !is_over || accepted_at.is_some() || !self.is_ahead_of_clock() {
            return;
        }
        let known = refused_by.values().map(|(known, _)| known.saturating_add(1)).max();
        let clock = i32::try_from(self.clock_secs()).unwrap_or(i32::MAX);
        let generation = clock.max(known.unwrap_or(clock));
        if generation < self.own.generation {
            self.acceptance = Acceptance::changed(self.now);
            (self.own.generation, self.start_generation) = (generation, generation);
            self.effects.events.push(GossipEvent::OwnGenerationLowered(generation));
        }
    }

    fn is_ahead_of_clock(&self) -> bool {
        i64::from(self.own.generation) > self.clock_secs() + MAX_START_AHEAD_SECS
    }
}
