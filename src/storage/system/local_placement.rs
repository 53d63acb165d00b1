//! Placement of a node on the ring, so that a start goes on where the last one ended.
//!
//! ```text
//! row Bootstrap  B        one byte, as 0.6 has it: 1 if the node has its data, 0 if it has left
//!                Place    "member", "first", "joining", "arriving", "departing" or "left"; of ours
//!                Target   token bytes: where it joins, if that is known; of ours
//!                Replaced the address of the dead node that had the token, if any; of ours
//! row L          Token    that of a member
//! ```

use super::{KEYSPACE, ROW, TOKEN, location_info, read_row};
use crate::model::mutation::MutationBuilder;
use crate::ring::Token;
use crate::storage::database::{Database, WriteError};
use crate::storage::error::ReadError;
use std::net::IpAddr;

const BOOTSTRAP: &str = "Bootstrap";
pub(super) const HAS_DATA: &[u8] = b"B";
pub(super) const PLACE: &[u8] = b"Place";
const TARGET: &[u8] = b"Target";
const REPLACED: &[u8] = b"Replaced";

/// Last noted placement of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SavedPlace {
    /// It owns its token, and has the data. Also what a node is taken for that has noted nothing.
    Member,
    /// It owns its token, which it took before anybody could say whether its address had one.
    First,
    /// It collects data, to join at this token or at one that is still to be chosen. What it has is
    /// incomplete.
    Joining(Option<Token>),
    /// It has the data for this token, and was about to say that it owns it, or has told some.
    Arriving {
        /// The token.
        token: Token,
        /// The dead node that had it.
        replaced: Option<IpAddr>,
    },
    /// It has handed its data over, and was about to say that it has left, or has told some.
    Departing,
    /// It has left, and all know.
    Left,
}

impl SavedPlace {
    /// Reads it.
    pub fn read(storage: &Database) -> Result<Self, ReadError> {
        let row = read_row(storage, BOOTSTRAP)?;
        let value = |name: &[u8]| {
            let cell = row.cells.iter().find(|cell| cell.name() == name && cell.is_live());
            cell.map(|cell| cell.value().to_vec())
        };
        // None is written as nothing, which a partitioner may take for its least token.
        let target = value(TARGET).filter(|it| !it.is_empty());
        let target = target.and_then(|it| storage.partitioner().token_from_bytes(&it).ok());
        Ok(match (value(PLACE).as_deref(), target) {
            (Some(b"first"), _) => Self::First,
            (Some(b"joining"), target) => Self::Joining(target),
            (Some(b"arriving"), Some(token)) => {
                let replaced = value(REPLACED).and_then(|it| String::from_utf8(it).ok());
                Self::Arriving { token, replaced: replaced.and_then(|it| it.parse().ok()) }
            }
            (Some(b"departing"), _) => Self::Departing,
            (Some(b"left"), _) => Self::Left,
            // An original that has left, or was about to move.
            (None, _) if value(HAS_DATA).is_some_and(|it| it == [0]) => Self::Left,
            _ => Self::Member,
        })
    }

    /// Notes it, durably; `token` is what the node owns from now on, if that is new.
    pub fn save(&self, storage: &Database, token: Option<&Token>) -> Result<(), WriteError> {
        let partitioner = storage.partitioner();
        let clock_millis = storage.now_millis();
        let family = location_info(storage);
        let (word, has_data, target): (&[u8], u8, _) = match self {
            Self::Member => (b"member", 1, None),
            Self::First => (b"first", 1, None),
            Self::Joining(target) => (b"joining", 0, target.as_ref()),
            Self::Arriving { token, .. } => (b"arriving", 1, Some(token)),
            Self::Departing => (b"departing", 0, None),
            Self::Left => (b"left", 0, None),
        };
        // Notes of before count less, also if the clock was set back.
        let at = latest(storage).map_or(clock_millis, |latest| clock_millis.max(latest + 1));
        let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, BOOTSTRAP.as_bytes());
        row.family(family);
        row.insert((b"", HAS_DATA), &[has_data], at);
        row.insert((b"", PLACE), word, at);
        row.insert((b"", TARGET), &target.map_or(vec![], |it| partitioner.token_to_bytes(it)), at);
        let replaced = match self {
            Self::Arriving { replaced: Some(replaced), .. } => replaced.to_string(),
            _ => String::new(),
        };
        row.insert((b"", REPLACED), replaced.as_bytes(), at);
        // The token first: a member without one could not start.
        if let Some(token) = token {
            let mut row = MutationBuilder::new(storage.schema(), KEYSPACE, ROW.as_bytes());
            row.family(family);
            row.insert((b"", TOKEN), &partitioner.token_to_bytes(token), at);
            storage.apply_own(&row.finish())?;
        }
        storage.apply_own(&row.finish())?;
        storage.sync().map_err(WriteError::from)
    }
}

/// The time of the latest note of this kind.
fn latest(storage: &Database) -> Option<i64> {
    let rows = [BOOTSTRAP, ROW].into_iter().flat_map(|row| read_row(storage, row));
    let cells = rows.flat_map(|row| row.cells);
    let notes = cells.filter(|it| [HAS_DATA, PLACE, TARGET, REPLACED, TOKEN].contains(&it.name()));
    notes.map(|cell| cell.timestamp()).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Partitioner;
    use crate::storage::system::identity::tests::open_with;

    #[test]
    fn a_token_that_is_to_be_chosen_is_none() {
        for partitioner in [Partitioner::Random, Partitioner::OrderPreserving] {
            let storage = open_with(partitioner);
            assert_eq!(SavedPlace::read(&storage).unwrap(), SavedPlace::Member);
            for place in [
                SavedPlace::First,
                SavedPlace::Joining(None),
                SavedPlace::Joining(Some(partitioner.token(b"a"))),
                SavedPlace::Arriving {
                    token: partitioner.token(b"b"),
                    replaced: Some([10, 0, 0, 4].into()),
                },
                SavedPlace::Arriving { token: partitioner.token(b"c"), replaced: None },
                SavedPlace::Departing,
                SavedPlace::Left,
            ] {
                place.save(&storage, None).unwrap();
                assert_eq!(SavedPlace::read(&storage).unwrap(), place);
            }
        }
    }
}
