//! The side of a register that proposes.

use super::{Ballot, Decision, Proposal};

/// One call to change a register, over all of its attempts.
///
/// An attempt that others overtake leaves its fate open: some participants may have accepted its
/// change, so that somebody else has it decided, or never has. The next attempt finds out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Proposer {
    /// Ballot of the present attempt.
    ballot: Ballot,
    /// The newest that participants have told of.
    newest: Ballot,
    /// The last settled decision at the beginning of the attempt.
    settled: Decision,
    /// The origins of the changes that it has proposed. At most one of them is ever decided.
    own: Vec<Ballot>,
}

/// The step after a quorum has promised.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Next {
    /// Have this decided and applied, which was left open, then begin the next attempt.
    Finish(Proposal),
    /// All earlier changes can be read now. Read, and propose.
    Propose,
    /// An earlier attempt of this call was decided and applied.
    Done,
    /// The fate of an earlier attempt can no longer be found out.
    Unknown,
}

/// Fate of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Decided,
    /// It is not decided, and will not be if anything newer is.
    Open,
    Unknown,
}

impl Proposer {
    /// Begins an attempt: returns its ballot, to be prepared. It is above all that were seen, even
    /// if the clock is behind.
    pub fn begin(&mut self, now_micros: i64, number: u64) -> Ballot {
        let least = self.newest.max(self.ballot).micros.saturating_add(1);
        self.ballot = Ballot { micros: now_micros.max(least), number };
        self.ballot
    }

    /// A participant has promised this ballot to another, or something bears its date.
    pub fn see(&mut self, newest: Ballot) {
        self.newest = self.newest.max(newest);
    }

    /// A quorum has promised, each with what it knew to be settled and what it has accepted since.
    pub fn on_promises(
        &mut self,
        promises: impl IntoIterator<Item = (Decision, Option<Proposal>)>,
    ) -> Next {
        let (settled, accepted): (Vec<_>, Vec<_>) = promises.into_iter().unzip();
        let newest = settled.into_iter().max_by_key(|decision| decision.ballot);
        self.settled = newest.unwrap_or_default();
        let accepted = accepted.into_iter().flatten();
        let last = accepted.max_by_key(|proposal| proposal.decision.ballot);
        let open = last.filter(|proposal| proposal.decision.ballot > self.settled.ballot);
        let last = open.as_ref().map_or(self.settled, |proposal| proposal.decision);
        // Of no change there is nothing to finish.
        let open = open.filter(|proposal| !proposal.value.is_empty());
        if open.is_none() {
            self.settled = last;
        }
        let mut fates = self.own.iter().map(|own| fate(*own, last));
        if fates.clone().any(|fate| fate == Fate::Unknown) {
            return Next::Unknown;
        }
        let is_decided = fates.any(|fate| fate == Fate::Decided);
        match open {
            Some(Proposal { decision, value }) if !is_decided || self.is_own(&decision) => {
                let decision = Decision { ballot: self.ballot, ..decision };
                Next::Finish(Proposal { decision, value })
            }
            _ if is_decided => Next::Done,
            _ => Next::Propose,
        }
    }

    /// Begins again after [`Next::Unknown`], as a call that has proposed nothing.
    pub fn begin_anew(&mut self) {
        self.own.clear();
    }

    /// Whether this call has proposed the change.
    pub fn is_own(&self, decision: &Decision) -> bool {
        self.own.contains(&decision.origin)
    }

    /// Whether a change of this call may be decided without its knowing.
    pub fn has_proposed(&self) -> bool {
        !self.own.is_empty()
    }

    /// The proposal of the present attempt; an empty value for no change.
    pub fn propose(&mut self, value: Vec<u8>) -> Proposal {
        let Self { ballot, settled, .. } = *self;
        let decision = if value.is_empty() {
            Decision { ballot, ..settled }
        } else {
            self.own.push(ballot);
            Decision { ballot, origin: ballot, previous: settled.origin }
        };
        Proposal { decision, value }
    }
}

/// Fate of a change of this origin, where `last` is the last decision that is decided or may be.
/// Origins ascend in the order of decisions.
fn fate(own: Ballot, last: Decision) -> Fate {
    let Decision { origin, previous, .. } = last;
    if own == origin || own == previous {
        Fate::Decided
    } else if own > previous {
        Fate::Open
    } else {
        Fate::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(micros: i64) -> Ballot {
        Ballot { micros, number: 1 }
    }

    fn decision(micros: i64, origin: i64, previous: i64) -> Decision {
        let [ballot, origin, previous] = [micros, origin, previous].map(ballot);
        Decision { ballot, origin, previous }
    }

    fn proposal(decision: Decision) -> Proposal {
        Proposal { decision, value: vec![1] }
    }

    #[test]
    fn ballots_are_above_all_that_were_seen() {
        let mut proposer = Proposer::default();
        assert_eq!(proposer.begin(10, 1), ballot(10));
        assert_eq!(proposer.begin(10, 1), ballot(11));
        proposer.see(ballot(99));
        proposer.see(ballot(50));
        assert_eq!(proposer.begin(12, 1), ballot(100));
        assert_eq!(proposer.begin(200, 1), ballot(200));
    }

    #[test]
    fn the_newest_open_change_is_finished_first() {
        let mut proposer = Proposer::default();
        proposer.begin(10, 1);
        let promises = [
            (decision(3, 3, 1), Some(proposal(decision(5, 5, 3)))),
            (decision(1, 1, 0), Some(proposal(decision(6, 4, 3)))),
        ];
        let finish = Next::Finish(proposal(decision(10, 4, 3)));
        assert_eq!(proposer.on_promises(promises.clone()), finish);
        // Known to be settled.
        let promises = promises.into_iter().chain([(decision(6, 4, 3), None)]);
        assert_eq!(proposer.on_promises(promises), Next::Propose);
        assert_eq!(proposer.propose(vec![1]), proposal(decision(10, 10, 4)));
        let nothing = Proposal { decision: decision(10, 4, 3), value: vec![] };
        assert_eq!(proposer.propose(vec![]), nothing);
    }

    #[test]
    fn where_nothing_was_changed_nothing_is_finished() {
        let mut proposer = Proposer::default();
        proposer.begin(10, 1);
        let nothing = Proposal { decision: decision(6, 4, 3), value: vec![] };
        let older = proposal(decision(5, 5, 3));
        let promises = [(decision(4, 4, 3), Some(nothing)), (decision(3, 3, 1), Some(older))];
        assert_eq!(proposer.on_promises(promises), Next::Propose);
        assert_eq!(proposer.propose(vec![1]), proposal(decision(10, 10, 4)));
    }

    /// After an attempt with ballot 10, overtaken after what the promises of the next one show.
    #[track_caller]
    fn fate_is(settled: Decision, open: Option<Decision>, next: &Next) {
        let mut proposer = Proposer::default();
        proposer.begin(10, 1);
        proposer.propose(vec![1]);
        proposer.begin(20, 1);
        assert_eq!(proposer.on_promises([(settled, open.map(proposal))]), *next);
    }

    #[test]
    fn the_last_decisions_tell_what_became_of_a_change() {
        // Nothing newer, or something in its place.
        fate_is(decision(3, 3, 1), None, &Next::Propose);
        fate_is(decision(15, 15, 3), None, &Next::Propose);
        // Somebody else has finished it, and perhaps gone on.
        fate_is(decision(15, 10, 3), None, &Next::Done);
        fate_is(decision(15, 15, 10), None, &Next::Done);
        fate_is(decision(12, 10, 3), Some(decision(15, 15, 10)), &Next::Done);
        // Open still.
        let own = Next::Finish(proposal(decision(20, 10, 3)));
        fate_is(decision(3, 3, 1), Some(decision(10, 10, 3)), &own);
        let other = Next::Finish(proposal(decision(20, 15, 3)));
        fate_is(decision(3, 3, 1), Some(decision(15, 15, 3)), &other);
        // Two that were decided since hide it.
        fate_is(decision(17, 17, 15), None, &Next::Unknown);
    }
}
