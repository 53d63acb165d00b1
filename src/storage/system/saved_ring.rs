//! Other nodes of the ring: a node knows them at its next start before it has heard of them.
//!
//! ```text
//! row L         ADDR without its length (4 or 16 bytes)    token bytes, as 0.6 has them
//! row Removed   ADDR, token bytes                          generation (4) and stage, of ours
//! ```
//!
//! The stage of a removal is a byte, which is left out if it is zero: 1 when the node may return, 2
//! when it has done so, with the generation that it had then.

use super::{KEYSPACE, ROW, location_info, read_row};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::deletion::Deletion;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::ring::Token;
use crate::storage::database::{Database, WriteError};
use crate::storage::error::ReadError;
use std::net::IpAddr;

const REMOVED: &str = "Removed";

/// The stages of a removal. A node without one is out.
const MAY_RETURN: u8 = 1;
const RETURNED: u8 = 2;

/// The ring when it was saved last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedRing {
    /// Owners of tokens.
    pub members: Vec<(IpAddr, Token)>,
    /// Nodes that were removed from the ring.
    pub removed: Vec<SavedRemoval>,
    /// Nodes that were removed and came back, with the generations that they had then.
    pub returned: Vec<(IpAddr, i32)>,
    /// The time of the latest note, deletions included, in milliseconds since 1970: what is noted
    /// from now on has to be later, also if the clock was set back.
    pub noted_millis: u64,
}

/// A node that was removed from the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedRemoval {
    /// The node.
    pub endpoint: IpAddr,
    /// The token that it had.
    pub token: Token,
    /// The generation that it had.
    pub generation: i32,
    /// Whether it may come back as it is.
    pub may_return: bool,
}

/// Something about the ring that counts beyond the next start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RingNote {
    /// The endpoint owns the token.
    Owns(IpAddr, Token),
    /// The endpoint owns none any more.
    OwnsNothing(IpAddr),
    /// The endpoint was removed from the token when it had this generation.
    Removed(IpAddr, Token, i32),
    /// The same, and it may come back as it is.
    MayReturn(IpAddr, Token, i32),
    /// That counts no more, since the endpoint has this generation.
    Readmitted(IpAddr, Token, i32),
}

impl SavedRing {
    /// Reads it. What makes no sense is left out, with a warning.
    pub fn read(storage: &Database) -> Result<Self, ReadError> {
        let mut saved = Self::default();
        for cell in read_row(storage, ROW)?.cells {
            let with_length = [&[cell.name().len() as u8], cell.name()].concat();
            let mut reader = ByteReader::new(&with_length);
            let Some(address) = reader.address().ok().filter(|_| reader.is_empty()) else {
                // The columns of the node itself.
                continue;
            };
            saved.see(cell.timestamp());
            if !cell.is_live() {
                continue;
            }
            match storage.partitioner().token_from_bytes(cell.value()) {
                Ok(token) => saved.members.push((address, token)),
                _ => log::warn!("a saved token of another node cannot be read and is left out"),
            }
        }
        for cell in read_row(storage, REMOVED)?.cells {
            saved.see(cell.timestamp());
            if !cell.is_live() {
                continue;
            }
            let mut reader = ByteReader::new(cell.name());
            let address = reader.address();
            let token = storage.partitioner().token_from_bytes(reader.rest());
            let stage = cell.value().split_first_chunk();
            match (address, token, stage) {
                (Ok(endpoint), Ok(_), Some((generation, [RETURNED, ..]))) => {
                    saved.returned.push((endpoint, i32::from_be_bytes(*generation)));
                }
                (Ok(endpoint), Ok(token), Some((generation, stage))) => {
                    let generation = i32::from_be_bytes(*generation);
                    let may_return = stage.first() == Some(&MAY_RETURN);
                    saved.removed.push(SavedRemoval { endpoint, token, generation, may_return });
                }
                _ => log::warn!("a note of a removed node cannot be read and is left out"),
            }
        }
        Ok(saved)
    }

    /// There is a note of this time.
    fn see(&mut self, timestamp: i64) {
        self.noted_millis = self.noted_millis.max(u64::try_from(timestamp).unwrap_or(0));
    }
}

impl RingNote {
    /// Writes it down. `millis` is the time, in milliseconds since 1970. Durable with the next sync
    /// of the commit log.
    pub fn write(&self, storage: &Database, millis: u64) -> Result<(), WriteError> {
        storage.apply_own(&self.mutation(storage, millis)).map(drop)
    }

    fn mutation(&self, storage: &Database, millis: u64) -> RowMutation {
        let at = i64::try_from(millis).unwrap_or(i64::MAX);
        let token_bytes = |token: &Token| storage.partitioner().token_to_bytes(token);
        let with_length = |endpoint: &IpAddr| {
            let mut address = Vec::new();
            address.put_address(*endpoint);
            address
        };
        let address = |endpoint: &IpAddr| with_length(endpoint).split_off(1);
        let removal = |endpoint: &IpAddr, token: &Token, generation: &i32, stage: &[u8]| {
            let name = [with_length(endpoint), token_bytes(token)].concat();
            (REMOVED, name, Some([&generation.to_be_bytes(), stage].concat()))
        };
        let (key, name, value) = match self {
            Self::Owns(endpoint, token) => (ROW, address(endpoint), Some(token_bytes(token))),
            Self::OwnsNothing(endpoint) => (ROW, address(endpoint), None),
            Self::Removed(endpoint, token, generation) => removal(endpoint, token, generation, &[]),
            Self::MayReturn(endpoint, token, generation) => {
                removal(endpoint, token, generation, &[MAY_RETURN])
            }
            Self::Readmitted(endpoint, token, generation) => {
                removal(endpoint, token, generation, &[RETURNED])
            }
        };
        let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, key.as_bytes());
        row.family(location_info(storage));
        if let Some(value) = value {
            row.insert((b"", &name), &value, at);
        } else {
            let deleted_secs = i32::try_from(millis / 1000).unwrap_or(i32::MAX);
            row.delete_column((b"", &name), Deletion::at(at, deleted_secs));
        }
        row.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::tests::{open, open_with};
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use crate::ring::Partitioner;

    #[test]
    fn the_next_start_knows_what_was_noted() {
        let fs = SimFileSystem::new(1);
        let (ada, bob): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), "2001:db8::1".parse().unwrap());
        let token = |key: &str| Partitioner::Random.token(key.as_bytes());
        let read_after = |notes: &[RingNote], millis: u64| {
            let storage = open(&fs, Partitioner::Random);
            for note in notes {
                note.write(&storage, millis).unwrap();
            }
            storage.sync().unwrap();
            drop(storage);
            SavedRing::read(&open(&fs, Partitioner::Random)).unwrap()
        };
        let saved = read_after(
            &[
                RingNote::Owns(ada, token("a")),
                RingNote::Owns(bob, token("b")),
                RingNote::Removed(bob, token("c"), 7),
                RingNote::Removed(ada, token("c"), 8),
            ],
            1000,
        );
        assert_eq!(saved.members, [(ada, token("a")), (bob, token("b"))]);
        let removed = |endpoint, generation, may_return| {
            let token = token("c");
            SavedRemoval { endpoint, token, generation, may_return }
        };
        assert_eq!(saved.removed, [removed(ada, 8, false), removed(bob, 7, false)]);
        let saved = read_after(
            &[
                RingNote::Owns(ada, token("d")),
                RingNote::OwnsNothing(bob),
                RingNote::Readmitted(ada, token("c"), 9),
                RingNote::MayReturn(bob, token("c"), 7),
            ],
            2000,
        );
        assert_eq!(saved.members, [(ada, token("d"))]);
        assert_eq!(saved.removed, [removed(bob, 7, true)]);
        assert_eq!(saved.returned, [(ada, 9)]);
        let saved = read_after(&[RingNote::Removed(ada, token("c"), 10)], 3000);
        assert_eq!(saved.removed, [removed(ada, 10, false), removed(bob, 7, true)]);
        assert_eq!(saved.returned, []);
        assert_eq!(saved.noted_millis, 3000);
        let saved = read_after(&[RingNote::OwnsNothing(ada)], 4000);
        assert_eq!((saved.members, saved.noted_millis), (vec![], 4000));
    }

    #[test]
    fn notes_have_the_form_of_0_6_and_that_of_ours() {
        let storage = open_with(Partitioner::Random);
        let token = Partitioner::Random.token(b"a");
        let bytes = Partitioner::Random.token_to_bytes(&token);
        let ada: IpAddr = [10, 0, 0, 1].into();
        for note in [RingNote::Owns(ada, token.clone()), RingNote::Removed(ada, token, 7)] {
            note.write(&storage, 1000).unwrap();
        }
        let cell = |name: &str| read_row(&storage, name).unwrap().cells.remove(0);
        let (owns, removed) = (cell(ROW), cell(REMOVED));
        assert_eq!((owns.name(), owns.value()), (&[10, 0, 0, 1][..], &bytes[..]));
        let name = [&[4, 10, 0, 0, 1][..], &bytes].concat();
        assert_eq!((removed.name(), removed.value()), (&name[..], &[0, 0, 0, 7][..]));
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let storage = open_with(Partitioner::Random);
        let good = Partitioner::Random.token(b"a");
        let note = Partitioner::Random.token_to_bytes(&good);
        for (row, column, value) in [
            // As the node itself has them, and one whose name is as long as an address.
            (ROW, &b"Token"[..], &note[..]),
            (ROW, &[10, 0, 0, 1], &[0x80; 40]),
            (ROW, &[&[0; 10][..], &[0xff, 0xff, 10, 0, 0, 2]].concat(), &note),
            (REMOVED, &[200, 1, 2], &[0, 0, 0, 1]),
            (REMOVED, &[&[4, 10, 0, 0, 3][..], &note].concat(), &[0, 1]),
        ] {
            let mut builder = MutationBuilder::new(storage.schema(), KEYSPACE, row.as_bytes());
            builder.family(location_info(&storage)).insert((b"", column), value, 1);
            storage.apply_own(&builder.finish()).unwrap();
        }
        let saved = SavedRing::read(&storage).unwrap();
        assert_eq!(saved.members, [([10, 0, 0, 2].into(), good)]);
        assert_eq!(saved.removed, []);
    }
}
