//! The generation of the node itself, and what other nodes make of it.

use super::{Effects, Gossiper, MAX_AHEAD_SECS, RING_DELAY};
use crate::base::utc::UtcTime;
use crate::gossip::GossipEvent;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Allowance for the difference of two clocks. A node exceeds a generation that others remember of
/// it, though by its own clock they should not have accepted one so great.
pub(super) const CLOCK_DIFFERENCE_SECS: i64 = 24 * 3600;

/// How far ahead of its clock a node is at most after a start with a correct clock.
const MAX_START_AHEAD_SECS: i64 = 60;

/// A node changes its generation only if it has been refused for this long. If there are others who
/// have accepted it, they have shown that by then.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(10);

/// What stands between the generation of this node and the nodes that should accept it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GenerationConflict {
    /// Others remember a generation of this node that it must not exceed, and ignore it.
    Ahead {
        /// The generation that they remember.
        remembered: i32,
        /// When they listen again, in seconds since 1970, unless they forget it before.
        until_secs: i64,
    },
    /// Others take the generation of this node for impossible, and ignore it.
    Refused {
        /// The generation of this node.
        generation: i32,
        /// A node that refuses it.
        by: IpAddr,
        /// Whether it is ahead of this node's clock as well, which was wrong at an earlier start.
        is_clock_right: bool,
    },
}

/// What other nodes make of the generation of this node.
#[derive(Debug, Default)]
pub(super) struct Acceptance {
    /// The nodes that refuse it: the newest generation of this node that each knows, and when it
    /// said so last.
    refused_by: BTreeMap<IpAddr, (i32, Duration)>,
    /// Since when there has been such a node.
    refused_since: Option<Duration>,
    /// When a node showed last that it knows this generation.
    accepted_at: Option<Duration>,
    /// When the generation was changed.
    changed_at: Option<Duration>,
    /// The generation that others remember and this node must not exceed, and when one said so
    /// last.
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
    /// The conflict about this node's generation; `None` if all is well.
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

    /// Whether some of the other nodes ignore this one for its generation.
    pub fn is_refused(&self) -> bool {
        !self.acceptance.refused_by.is_empty()
    }

    /// Another node remembers this of this node. If it is from an earlier life that node ignores
    /// this one, and only a greater generation makes it listen.
    pub(super) fn hear_of_self(
        &mut self,
        from: IpAddr,
        remembered: (i32, i32),
        now: Duration,
        effects: &mut Effects,
    ) {
        if remembered <= self.own.age() {
            if remembered.0 == self.own.generation {
                self.accept_self(from, now);
            }
            return;
        }
        let needed = i64::from(remembered.0) + 1;
        match i32::try_from(needed) {
            Ok(generation)
                if needed <= self.time_secs() + MAX_AHEAD_SECS + CLOCK_DIFFERENCE_SECS =>
            {
                self.acceptance = Acceptance::changed(now);
                self.own.generation = generation;
                effects.events.push(GossipEvent::OwnGenerationRaised { generation });
            }
            _ => {
                let before = self.acceptance.ahead.replace((remembered.0, now));
                if before.is_none_or(|(before, _)| before != remembered.0) {
                    let conflict = self.generation_conflict();
                    effects.events.extend(conflict.map(GossipEvent::GenerationConflict));
                }
            }
        }
    }

    /// Another node knows this node by its generation.
    pub(super) fn accept_self(&mut self, from: IpAddr, now: Duration) {
        self.acceptance.refused_by.remove(&from);
        self.acceptance.accepted_at = Some(now);
    }

    /// Another node answers with nothing but an older generation of this node: it refuses the
    /// present one. A moment after a change that may be an answer to a message from before.
    pub(super) fn refuse_self(
        &mut self,
        from: IpAddr,
        known: i32,
        now: Duration,
        effects: &mut Effects,
    ) {
        let changed_at = self.acceptance.changed_at;
        let may_be_late = changed_at.is_some_and(|at| now.saturating_sub(at) < REFUSAL_PATIENCE);
        if known >= self.own.generation || may_be_late || !self.is_alive(from) {
            return;
        }
        self.acceptance.refused_by.insert(from, (known, now));
        if self.acceptance.refused_since.is_none() {
            self.acceptance.refused_since = Some(now);
            let conflict = self.generation_conflict();
            effects.events.extend(conflict.map(GossipEvent::GenerationConflict));
        }
    }

    /// Goes on with a smaller generation if others refuse this one, none has accepted it, and this
    /// node's clock agrees with them: the node was started once when its clock was wrong.
    pub(super) fn review_generation(&mut self, now: Duration, effects: &mut Effects) {
        let was_refused = self.acceptance.refused_since.is_some();
        self.acceptance.expire(now);
        let Acceptance { refused_by, refused_since, accepted_at, .. } = &self.acceptance;
        if was_refused && refused_by.is_empty() {
            effects.events.push(GossipEvent::OwnGenerationAccepted);
        }
        let is_over = refused_since.is_some_and(|at| now.saturating_sub(at) >= REFUSAL_PATIENCE);
        if !is_over || accepted_at.is_some() || !self.is_ahead_of_clock() {
            return;
        }
        let known = refused_by.values().map(|(known, _)| known.saturating_add(1)).max();
        let clock = i32::try_from(self.clock_secs()).unwrap_or(i32::MAX);
        let generation = clock.max(known.unwrap_or(clock));
        if generation < self.own.generation {
            self.acceptance = Acceptance::changed(now);
            (self.own.generation, self.start_generation) = (generation, generation);
            effects.events.push(GossipEvent::OwnGenerationLowered { generation });
        }
    }

    fn is_ahead_of_clock(&self) -> bool {
        i64::from(self.own.generation) > self.clock_secs() + MAX_START_AHEAD_SECS
    }
}

impl fmt::Display for GenerationConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead { remembered, until_secs } => write!(
                f,
                "Other nodes remember generation {remembered} of this node, which is ahead of its \
                 clock: they ignore this node until {}. Set the clock, or wait until then; or stop \
                 all other nodes at one time, which makes them forget it",
                UtcTime::of_secs(*until_secs)
            ),
            Self::Refused { generation, by, is_clock_right } => {
                write!(
                    f,
                    "/{by} takes this node for dead, as it may do with others, since it refuses \
                     generation {generation} of this node, that of a start on {}: ",
                    UtcTime::of_secs(i64::from(*generation))
                )?;
                f.write_str(if *is_clock_right {
                    "the clock was wrong at an earlier start. This node lowers its generation, \
                     unless other nodes have accepted it: then stop those at one time"
                } else {
                    "the clock of this node or of that one is wrong. Set it and restart that node"
                })
            }
        }
    }
}
