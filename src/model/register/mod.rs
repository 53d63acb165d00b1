//! Registers: participants agree on one change of a register after the other, by the Paxos
//! algorithm. Pure state machines; who uses them brings messages, time and chance.
//!
//! ```text
//! proposer                             participants
//!   prepare (ballot)          ----->     promise to take part in no older ballot
//!                             <-----     what was settled last, and what was accepted since
//!   propose (ballot, change)  ----->     accept, unless a newer ballot was promised
//!                             <-----
//!   a quorum has accepted: the change is decided, and is applied until a quorum shows it
//!   settle (ballot)           ----->     the change itself is not needed any more
//!
//!   participant    the side that promises and accepts
//!   proposer       the side that proposes
//! ```
//!
//! A proposer that finds an accepted change which is not settled has it decided and applied before
//! its own. So each sees the effects of all changes before, and a settled one can be forgotten but
//! for its place in the order.
//!
//! The effect of a change may be anywhere, such as in a row. Or participants keep the value of the
//! last change themselves, and tell it.
//!
//! ```text
//! ballot      i64 microseconds, u64 number
//! decision    ballot, ballot of the origin, ballot of the previous origin
//! proposal    decision, u32 number of bytes, value
//! kept        i64 version, u32 number of bytes, value
//! ```

mod participant;
mod proposer;
#[cfg(test)]
mod tests;

pub use participant::{Ask, Register, Vote};
pub use proposer::{Next, Proposer};

use crate::base::bytes::{ByteReader, Malformed};

/// Number of an attempt to change a register. No two are alike, and of those that get the promises
/// of a quorum no two have the same microseconds, which so can date changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// About the time of the attempt, since the Unix epoch. Above that of all ballots before.
    pub micros: i64,
    /// Distinguishes attempts of the same time.
    pub number: u64,
}

/// Place of a change in the order of all changes of its register.
///
/// Attempts to finish the change of another, or to change nothing, have their own ballots but keep
/// the origin. So a proposer learns from the last decisions what became of its own proposal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The ballot by which it was proposed last.
    pub ballot: Ballot,
    /// The ballot by which the change was proposed first.
    pub origin: Ballot,
    /// The origin of the change before it.
    pub previous: Ballot,
}

/// A change that participants are to accept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// Its place.
    pub decision: Decision,
    /// The meaning of the change for who uses the register. Empty for no change: then the proposal
    /// only makes sure that no older one can be decided any more.
    pub value: Vec<u8>,
}

/// The value of a register whose participants keep it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Kept {
    /// Grows with each change: the microseconds of its origin. 0 before the first change.
    pub version: i64,
    /// The value of the change. Empty before the first.
    pub value: Vec<u8>,
}

impl Ballot {
    /// Appends it.
    pub fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.micros.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
    }

    /// Reads it.
    pub fn read(reader: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(Self { micros: reader.i64()?, number: reader.u64()? })
    }
}

impl Decision {
    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        let Self { ballot, origin, previous } = self;
        for ballot in [ballot, origin, previous] {
            ballot.put(out);
        }
    }

    /// Reads it.
    pub fn read(reader: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        let mut next = || Ballot::read(reader);
        Ok(Self { ballot: next()?, origin: next()?, previous: next()? })
    }
}

impl Proposal {
    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.decision.put(out);
        put_value(&self.value, out);
    }

    /// Reads it.
    pub fn read(reader: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(Self { decision: Decision::read(reader)?, value: read_value(reader)? })
    }
}

impl Kept {
    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
        put_value(&self.value, out);
    }

    /// Reads it.
    pub fn read(reader: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(Self { version: reader.i64()?, value: read_value(reader)? })
    }
}

fn put_value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
    out.extend_from_slice(value);
}

fn read_value(reader: &mut ByteReader<'_>) -> Result<Vec<u8>, Malformed> {
    let length = reader.u32()? as usize;
    Ok(reader.take(length)?.to_vec())
}
