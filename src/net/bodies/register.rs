//! The call of a proposer to a participant of a register, and its answer. Nodes of this program
//! only.
//!
//! ```text
//! call     u16 number of bytes, name of the register, then one of
//!            0, ballot      prepare
//!            1, proposal    propose
//!            2, decision    settle; has no answer
//!            3, kept        keep
//!            4, i64 version tell
//! answer   one of
//!            0, decision settled, and the proposal accepted if there is one: promised
//!            1                                                               accepted
//!            2, ballot                                                       refused
//!            3, and what is kept if that is newer                            told
//! ```
//!
//! [`register`](crate::model::register) has ballots, decisions, proposals and what is kept.

use super::error::{BodyError, EncodeError};
use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::base::java::TooLong;
use crate::model::key::RowKey;
use crate::model::original_mutation::check_end;
use crate::model::register::{Ask, Ballot, Decision, Kept, Proposal, Vote};

/// A message to a participant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterCall {
    /// The register.
    pub name: RowKey,
    /// The request.
    pub ask: Ask,
}

impl RegisterCall {
    /// The body.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let (mut out, name) = (Vec::new(), self.name.as_bytes());
        if name.len() > u16::MAX.into() {
            return Err(TooLong(name.len()).into());
        }
        out.put_prefixed(name);
        match &self.ask {
            Ask::Prepare(ballot) => {
                out.push(0);
                ballot.put(&mut out);
            }
            Ask::Propose(proposal) => {
                out.push(1);
                proposal.put(&mut out);
            }
            Ask::Settle(decision) => {
                out.push(2);
                decision.put(&mut out);
            }
            Ask::Keep(kept) => {
                out.push(3);
                kept.put(&mut out);
            }
            Ask::Tell(version) => {
                out.push(4);
                out.extend_from_slice(&version.to_be_bytes());
            }
        }
        Ok(out)
    }

    /// Reads it.
    pub fn decode(body: &[u8]) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let name = super::body::read_any_key(&mut reader)?;
        let ask = match reader.u8()? {
            0 => Ask::Prepare(Ballot::read(&mut reader)?),
            1 => Ask::Propose(Proposal::read(&mut reader)?),
            2 => Ask::Settle(Decision::read(&mut reader)?),
            3 => Ask::Keep(Kept::read(&mut reader)?),
            4 => Ask::Tell(reader.i64()?),
            _ => return Err(Malformed(reader.position()).into()),
        };
        check_end(&reader)?;
        Ok(Self { name, ask })
    }
}

/// The body of an answer.
pub fn encode_vote(vote: &Vote) -> Vec<u8> {
    let mut out = Vec::new();
    match vote {
        Vote::Promised { settled, accepted } => {
            out.push(0);
            settled.put(&mut out);
            if let Some(proposal) = accepted {
                proposal.put(&mut out);
            }
        }
        Vote::Accepted => out.push(1),
        Vote::Refused(ballot) => {
            out.push(2);
            ballot.put(&mut out);
        }
        Vote::Told(kept) => {
            out.push(3);
            if let Some(kept) = kept {
                kept.put(&mut out);
            }
        }
    }
    out
}

/// Reads an answer.
pub fn decode_vote(body: &[u8]) -> Result<Vote, BodyError> {
    let mut reader = ByteReader::new(body);
    let vote = match reader.u8()? {
        0 => {
            let (settled, is_more) = (Decision::read(&mut reader)?, !reader.is_empty());
            let accepted = is_more.then(|| Proposal::read(&mut reader)).transpose()?;
            Vote::Promised { settled, accepted }
        }
        1 => Vote::Accepted,
        2 => Vote::Refused(Ballot::read(&mut reader)?),
        3 if reader.is_empty() => Vote::Told(None),
        3 => Vote::Told(Some(Kept::read(&mut reader)?)),
        _ => return Err(Malformed(reader.position()).into()),
    };
    check_end(&reader)?;
    Ok(vote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> (Vec<Ask>, Vec<Vote>) {
        let [ballot, origin, previous] =
            [3, -2, i64::MAX].map(|it| Ballot { micros: it, number: 7 });
        let settled = Decision { ballot, origin, previous };
        let proposal = Proposal { decision: settled, value: b"value".to_vec() };
        let kept = Kept { version: 7, value: b"kept".to_vec() };
        let asks = vec![
            Ask::Prepare(ballot),
            Ask::Propose(proposal.clone()),
            Ask::Settle(settled),
            Ask::Keep(kept.clone()),
            Ask::Tell(7),
        ];
        let promised = |accepted| Vote::Promised { settled, accepted };
        let votes = vec![
            promised(None),
            promised(Some(proposal)),
            Vote::Accepted,
            Vote::Refused(origin),
            Vote::Told(None),
            Vote::Told(Some(kept)),
        ];
        (asks, votes)
    }

    #[test]
    fn calls_and_votes_are_read_as_written_and_damage_is_noticed() {
        let (asks, votes) = all();
        for ask in asks {
            let call = RegisterCall { name: RowKey::new(b"\xffname"), ask };
            let body = call.encode().unwrap();
            assert_eq!(RegisterCall::decode(&body), Ok(call));
            for end in 0..body.len() {
                RegisterCall::decode(&body[..end]).unwrap_err();
            }
            RegisterCall::decode(&[&body[..], b"x"].concat()).unwrap_err();
        }
        for vote in votes {
            let body = encode_vote(&vote);
            assert_eq!(decode_vote(&body), Ok(vote));
            decode_vote(&body[..body.len() - 1]).unwrap_err();
            decode_vote(&[&body[..], b"x"].concat()).unwrap_err();
        }
        decode_vote(&[4]).unwrap_err();
        RegisterCall::decode(b"\0\x01n\x05").unwrap_err();
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        let name = RowKey::new(&vec![b'n'; 65536]);
        let ask = Ask::Prepare(Ballot::default());
        RegisterCall { name, ask }.encode().unwrap_err();
    }
}
