//! The side of a register that promises and accepts.

use super::{Ballot, Decision, Kept, Proposal};
use crate::base::bytes::{ByteReader, Malformed};

/// Message of a proposer to a participant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Promise to take part in no older ballot.
    Prepare(Ballot),
    /// Accept a change.
    Propose(Proposal),
    /// This was decided, and a quorum shows its effect. Has no answer.
    Settle(Decision),
    /// This was decided: keep it, unless something newer is kept.
    Keep(Kept),
    /// Tell what is kept, if it is newer than this version.
    Tell(i64),
}

/// Answer of a participant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Vote {
    /// It has promised.
    Promised {
        /// The last decision that it knows to be settled.
        settled: Decision,
        /// The last proposal that it has accepted after that.
        accepted: Option<Proposal>,
    },
    /// It has accepted.
    Accepted,
    /// It has promised this ballot to another, which is too new.
    Refused(Ballot),
    /// It keeps this, if anything newer than the asker knows.
    Told(Option<Kept>),
}

/// State of a register at one participant. It must be on disk before the answer leaves the node,
/// and must not be forgotten.
///
/// Where it was lost all the same, as with a new disk, the participant may contradict its promises:
/// a change that a quorum with it has accepted, and that is not settled, may then be decided
/// against. Settled changes are safe as other data are, by their replicas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Register {
    /// At least the ballot of all that follows.
    promised: Ballot,
    settled: Decision,
    /// Newer than what is settled.
    accepted: Option<Proposal>,
    /// Decided, perhaps not yet settled.
    kept: Kept,
}

impl Register {
    /// Takes a message. Returns the vote, and whether the state has to be written first.
    pub fn take(&mut self, ask: Ask) -> (Vote, bool) {
        match ask {
            // A repeated message has to wait for the disk as the first one.
            Ask::Prepare(ballot) if self.admits(ballot) => {
                self.promised = ballot;
                let (settled, accepted) = (self.settled, self.accepted.clone());
                (Vote::Promised { settled, accepted }, true)
            }
            Ask::Propose(Proposal { decision, .. }) if decision.ballot == self.settled.ballot => {
                (Vote::Accepted, false)
            }
            Ask::Propose(proposal) if self.admits(proposal.decision.ballot) => {
                self.promised = proposal.decision.ballot;
                self.accepted = Some(proposal);
                (Vote::Accepted, true)
            }
            Ask::Prepare(_) | Ask::Propose(_) => (Vote::Refused(self.promised), false),
            Ask::Settle(decision) => (Vote::Accepted, self.settle(decision)),
            Ask::Keep(kept) if kept.version <= self.kept.version => (Vote::Accepted, true),
            Ask::Keep(kept) => {
                self.kept = kept;
                (Vote::Accepted, true)
            }
            Ask::Tell(version) => {
                let is_news = self.kept.version > version;
                (Vote::Told(is_news.then(|| self.kept.clone())), false)
            }
        }
    }

    /// The value that it keeps.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// The value that it keeps.
    pub fn into_kept(self) -> Kept {
        self.kept
    }

    /// The state, with what was saved apart from it.
    #[must_use]
    pub fn keeping(self, kept: Kept) -> Self {
        Self { kept, ..self }
    }

    /// Of ballots of the same microseconds only one gets promises.
    fn admits(&self, ballot: Ballot) -> bool {
        ballot == self.promised || ballot.micros > self.promised.micros
    }

    fn settle(&mut self, decision: Decision) -> bool {
        let is_new = decision.ballot > self.settled.ballot;
        if is_new {
            self.settled = decision;
            self.promised = self.promised.max(decision.ballot);
            self.accepted.take_if(|it| it.decision.ballot <= decision.ballot);
        }
        is_new
    }

    /// Forgets a change that was accepted before this time, whose proposer has told nobody that it
    /// was decided.
    pub fn forget_accepted(&mut self, micros: i64) {
        self.accepted.take_if(|it| it.decision.ballot.micros < micros);
    }

    /// The bytes that [`Register::decode`] reads: the promise, what is settled, and what is
    /// accepted if anything is. What is kept is saved apart.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.promised.put(&mut out);
        self.settled.put(&mut out);
        if let Some(accepted) = &self.accepted {
            accepted.put(&mut out);
        }
        out
    }

    /// Reads a state.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let (promised, settled) = (Ballot::read(&mut reader)?, Decision::read(&mut reader)?);
        let is_more = !reader.is_empty();
        let accepted = is_more.then(|| Proposal::read(&mut reader)).transpose()?;
        if reader.is_empty() {
            return Ok(Self { promised, settled, accepted, kept: Kept::default() });
        }
        Err(Malformed(reader.position()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(micros: i64, number: u64) -> Ballot {
        Ballot { micros, number }
    }

    fn decision(micros: i64) -> Decision {
        let (ballot, previous) = (ballot(micros, 1), ballot(micros - 1, 1));
        Decision { ballot, origin: ballot, previous }
    }

    fn proposal(micros: i64) -> Proposal {
        Proposal { decision: decision(micros), value: vec![1] }
    }

    fn refused(micros: i64) -> (Vote, bool) {
        (Vote::Refused(ballot(micros, 1)), false)
    }

    #[test]
    fn a_promise_keeps_older_ballots_out() {
        let mut register = Register::default();
        let promised = |accepted| Vote::Promised { settled: Decision::default(), accepted };
        assert_eq!(register.take(Ask::Prepare(ballot(5, 1))), (promised(None), true));
        assert_eq!(register.take(Ask::Prepare(ballot(4, 9))), refused(5));
        assert_eq!(register.take(Ask::Prepare(ballot(5, 2))), refused(5), "of the same time");
        assert_eq!(register.take(Ask::Propose(proposal(4))), refused(5));
        assert_eq!(register.take(Ask::Propose(proposal(5))), (Vote::Accepted, true));
        let again = register.take(Ask::Prepare(ballot(6, 1)));
        assert_eq!(again, (promised(Some(proposal(5))), true));
        assert_eq!(register.take(Ask::Propose(proposal(5))), refused(6));
    }

    #[test]
    fn what_is_settled_is_forgotten_but_for_its_place() {
        let mut register = Register::default();
        register.take(Ask::Propose(proposal(5)));
        assert_eq!(register.take(Ask::Settle(decision(5))), (Vote::Accepted, true));
        assert_eq!(register.encode().len(), 4 * 16);
        assert_eq!(register.take(Ask::Propose(proposal(5))), (Vote::Accepted, false));
        assert_eq!(register.take(Ask::Settle(decision(4))), (Vote::Accepted, false));
        let promised = Vote::Promised { settled: decision(5), accepted: None };
        assert_eq!(register.take(Ask::Prepare(ballot(6, 1))), (promised, true));
    }

    #[test]
    fn a_settled_change_leaves_newer_ones_and_keeps_older_ballots_out() {
        let mut register = Register::default();
        register.take(Ask::Propose(proposal(7)));
        register.take(Ask::Settle(decision(5)));
        let promised = Vote::Promised { settled: decision(5), accepted: Some(proposal(7)) };
        assert_eq!(register.take(Ask::Prepare(ballot(8, 1))), (promised, true));
        let mut other = Register::default();
        other.take(Ask::Settle(decision(5)));
        assert_eq!(other.take(Ask::Prepare(ballot(4, 1))), refused(5));
    }

    #[test]
    fn the_newest_value_is_kept_and_told() {
        let mut register = Register::default();
        let kept = |version| Kept { version, value: vec![version as u8] };
        assert_eq!(register.take(Ask::Tell(0)), (Vote::Told(None), false));
        assert_eq!(register.take(Ask::Keep(kept(5))), (Vote::Accepted, true));
        assert_eq!(register.take(Ask::Keep(kept(4))), (Vote::Accepted, true));
        assert_eq!(register.take(Ask::Tell(4)), (Vote::Told(Some(kept(5))), false));
        assert_eq!(register.take(Ask::Tell(5)), (Vote::Told(None), false));
        let saved = Register::decode(&register.encode()).unwrap();
        assert_eq!(saved.keeping(kept(5)), register);
    }

    #[test]
    fn states_are_read_as_written_and_damage_is_noticed() {
        let mut register = Register::default();
        register.take(Ask::Propose(proposal(5)));
        register.take(Ask::Settle(decision(4)));
        let bytes = register.encode();
        assert_eq!(Register::decode(&bytes), Ok(register.clone()));
        register.forget_accepted(5);
        assert_eq!(Register::decode(&bytes), Ok(register.clone()));
        register.forget_accepted(6);
        assert_eq!(Register::decode(&bytes[..64]), Ok(register));
        for end in (0..bytes.len()).filter(|end| *end != 64) {
            Register::decode(&bytes[..end]).unwrap_err();
        }
        Register::decode(&[&bytes[..], b"x"].concat()).unwrap_err();
    }
}
