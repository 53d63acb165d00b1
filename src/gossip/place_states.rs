//! Application states that say where a node is on the ring.
//!
//! `MOVE` has the values of 0.6:
//!
//! ```text
//! BOOT,<token>
//! NORMAL,<token>
//! NORMAL,<token>,remove,<token of a dead node>
//! LEAVING,<token>
//! LEFT,<token>
//! LEFT,left,<token>             the same, as 0.5 to 0.6.5 say it
//! LEFT,remove,<token>           the sender removed a dead node, and keeps its place: 0.5 to 0.6.5
//! ```
//!
//! Nodes of 0.6 store and pass on the others, and do not act on them. `X-ALEXANDRA-PLAN`:
//!
//! ```text
//! remove,<address>,<token>      the others take over the ranges of that node, then it is removed
//! replace,<address>,<token>     the sender, which has no place yet, collects the data of that node
//! replaced,<address>,<token>    the sender has the token, and that node must not come back to it
//! arrived,<address>,<token>     the sender has just joined, and some may not know it yet
//! gone,<address>,<token>        the sender has just left, and some may not know it yet
//! (empty)                       nothing
//! ```
//!
//! `X-ALEXANDRA-REMOVED` tells a removed node that was only cut off of its removal, since `MOVE`
//! names only the token of a removed node and not which start of it was removed:
//!
//! ```text
//! <address>,<generation> <address>,<generation> …    the last start of each that has no place
//! (empty)                                            none
//! ```

use crate::ring::{Partitioner, Token, TokenError};
use std::net::IpAddr;

/// Removals that a node announces, those of the latest starts. The nodes of older ones have heard
/// of it, or are gone for good.
const MOST_REMOVALS: usize = 64;

/// A value of `MOVE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// The node collects the data for this token. Writes go there, reads do not.
    Boot(Token),
    /// The node owns the token.
    Normal {
        /// The token.
        token: Token,
        /// The token of a dead node that an operator removed through this node.
        removed: Option<Token>,
    },
    /// The node owns this token, and hands its data over.
    Leaving(Token),
    /// The node owned this token, and owns none any more.
    Left(Token),
    /// The node keeps its place, and an operator removed the dead node of this token through it. Up
    /// to 0.6.5; later releases repeat the place.
    Removed(Token),
}

/// A value of `MOVE` on which the gossip of 0.6 fails, whichever node passes it on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMove {
    /// The number of fields does not fit the word.
    #[error("MOVE has {0} fields")]
    Fields(usize),
    /// A token is not one of the cluster's partitioner.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl Move {
    /// Reads a value. `None` if its first word is unknown, which 0.6 ignores.
    pub fn parse(partitioner: Partitioner, value: &str) -> Result<Option<Self>, BadMove> {
        let fields: Vec<&str> = value.split(',').collect();
        let token = |text| partitioner.parse_token(text).map_err(BadMove::Token);
        Ok(Some(match fields[..] {
            ["BOOT", text] => Self::Boot(token(text)?),
            ["LEAVING", text] => Self::Leaving(token(text)?),
            ["LEFT", text] | ["LEFT", "left", text] => Self::Left(token(text)?),
            ["LEFT", "remove", text] => Self::Removed(token(text)?),
            ["NORMAL", text, "remove", removed, ..] => {
                Self::Normal { token: token(text)?, removed: Some(token(removed)?) }
            }
            ["NORMAL"] | ["NORMAL", _, "remove"] => return Err(BadMove::Fields(fields.len())),
            ["NORMAL", text, ..] => Self::Normal { token: token(text)?, removed: None },
            ["BOOT" | "LEAVING" | "LEFT", ..] => return Err(BadMove::Fields(fields.len())),
            _ => return Ok(None),
        }))
    }

    /// The value, as [`Self::parse`] reads it.
    pub fn format(&self, partitioner: Partitioner) -> String {
        let text = |token| partitioner.format_token(token);
        match self {
            Self::Boot(token) => format!("BOOT,{}", text(token)),
            Self::Normal { token, removed: None } => format!("NORMAL,{}", text(token)),
            Self::Normal { token, removed: Some(removed) } => {
                format!("NORMAL,{},remove,{}", text(token), text(removed))
            }
            Self::Leaving(token) => format!("LEAVING,{}", text(token)),
            Self::Left(token) => format!("LEFT,{}", text(token)),
            Self::Removed(token) => format!("LEFT,remove,{}", text(token)),
        }
    }
}

/// A node and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlace {
    /// Its address.
    pub endpoint: IpAddr,
    /// The token that it owns, or owned.
    pub token: Token,
}

/// A value of `X-ALEXANDRA-PLAN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The ranges of this dead node go to the other members.
    Remove(NodePlace),
    /// The sender is to get the token of this dead node.
    Replace(NodePlace),
    /// The sender got the token of this dead node.
    Replaced(NodePlace),
    /// The sender just got this place. Writes go to the former replicas as well, from which some
    /// nodes may still read.
    Arrived(NodePlace),
    /// The sender just left this place. Writes go there as well.
    Gone(NodePlace),
}

impl Plan {
    /// Reads a value. `None` if it is empty, or unknown to this version.
    pub fn parse(partitioner: Partitioner, value: &str) -> Option<Self> {
        // A token may have commas.
        let mut fields = value.splitn(3, ',');
        let (word, address, token) = (fields.next()?, fields.next()?, fields.next()?);
        let endpoint = address.parse().ok()?;
        let node = NodePlace { endpoint, token: partitioner.parse_token(token).ok()? };
        match word {
            "remove" => Some(Self::Remove(node)),
            "replace" => Some(Self::Replace(node)),
            "replaced" => Some(Self::Replaced(node)),
            "arrived" => Some(Self::Arrived(node)),
            "gone" => Some(Self::Gone(node)),
            _ => None,
        }
    }

    /// The value, as [`Self::parse`] reads it.
    pub fn format(&self, partitioner: Partitioner) -> String {
        let (word, NodePlace { endpoint, token }) = match self {
            Self::Remove(node) => ("remove", node),
            Self::Replace(node) => ("replace", node),
            Self::Replaced(node) => ("replaced", node),
            Self::Arrived(node) => ("arrived", node),
            Self::Gone(node) => ("gone", node),
        };
        format!("{word},{endpoint},{}", partitioner.format_token(token))
    }
}

/// The value of `X-ALEXANDRA-REMOVED` for these endpoints and their generations.
pub(super) fn format_removals(mut removed: Vec<(IpAddr, i32)>) -> String {
    removed.sort_unstable_by_key(|(endpoint, generation)| (-i64::from(*generation), *endpoint));
    removed.truncate(MOST_REMOVALS);
    let entries = removed.iter().map(|(endpoint, generation)| format!("{endpoint},{generation}"));
    entries.collect::<Vec<_>>().join(" ")
}

/// Whether a value of `X-ALEXANDRA-REMOVED` names this start of an endpoint, or a later one.
/// Entries that do not parse are ignored.
pub fn names_removal(value: &str, endpoint: IpAddr, generation: i32) -> bool {
    value.split(' ').filter_map(|entry| entry.split_once(',')).any(|(address, removed)| {
        address.parse() == Ok(endpoint) && removed.parse().is_ok_and(|it: i32| it >= generation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_read_and_written_back() {
        let [five, six] = [5, 6].map(Token::Random);
        for (value, expected) in [
            ("BOOT,5", Move::Boot(five.clone())),
            ("NORMAL,5", Move::Normal { token: five.clone(), removed: None }),
            ("NORMAL,5,remove,6", Move::Normal { token: five.clone(), removed: Some(six) }),
            ("LEAVING,5", Move::Leaving(five.clone())),
            ("LEFT,5", Move::Left(five.clone())),
            ("LEFT,remove,5", Move::Removed(five.clone())),
        ] {
            assert_eq!(expected.format(Partitioner::Random), value);
            assert_eq!(Move::parse(Partitioner::Random, value), Ok(Some(expected)));
        }
        // Up to 0.6.5.
        assert_eq!(Move::parse(Partitioner::Random, "LEFT,left,5"), Ok(Some(Move::Left(five))));
    }

    #[test]
    fn moves_on_which_the_original_fails_are_bad_and_those_it_ignores_are_not() {
        let parse = |value| Move::parse(Partitioner::Random, value);
        for value in
            ["NORMAL", "BOOT", "BOOT,1,2", "LEFT", "LEFT,1,2", "LEAVING,1,", "NORMAL,1,remove"]
        {
            assert!(matches!(parse(value), Err(BadMove::Fields(_))), "{value}");
        }
        for value in ["NORMAL,x", "BOOT,", "NORMAL,1,remove,y", "LEFT,1e5", "LEFT,left"] {
            assert!(matches!(parse(value), Err(BadMove::Token(_))), "{value}");
        }
        for value in ["", "PAUSED", "normal,1", "X,1,2,3"] {
            assert_eq!(parse(value), Ok(None), "{value}");
        }
        let normal = Move::Normal { token: Token::Random(1), removed: None };
        assert_eq!(parse("NORMAL,1,else"), Ok(Some(normal)));
        // The display form of collated tokens.
        let token = Token::collated(vec![0xab, 1].into());
        let read = Move::parse(Partitioner::CollatingOrderPreserving, "LEAVING,Token(bytes[ab01])");
        assert_eq!(read, Ok(Some(Move::Leaving(token))));
    }

    #[test]
    fn plans_are_read_and_written_back() {
        let node = |endpoint: &str, token| NodePlace { endpoint: endpoint.parse().unwrap(), token };
        let five = node("10.0.0.1", Token::Random(5));
        let comma = node("::1", Token::ordered(b"a,b".as_slice().into()));
        for (partitioner, value, expected) in [
            (Partitioner::Random, "remove,10.0.0.1,5", Plan::Remove(five.clone())),
            (Partitioner::Random, "arrived,10.0.0.1,5", Plan::Arrived(five.clone())),
            (Partitioner::Random, "gone,10.0.0.1,5", Plan::Gone(five.clone())),
            (Partitioner::Random, "replace,10.0.0.1,5", Plan::Replace(five)),
            (Partitioner::OrderPreserving, "replaced,::1,a,b", Plan::Replaced(comma)),
        ] {
            assert_eq!(expected.format(partitioner), value);
            assert_eq!(Plan::parse(partitioner, value), Some(expected));
        }
        for value in ["", "remove", "remove,10.0.0.1", "remove,x,5", "remove,10.0.0.1,x", "a,b,c"] {
            assert_eq!(Plan::parse(Partitioner::Random, value), None, "{value}");
        }
    }

    #[test]
    fn a_removal_is_of_one_start_and_those_before_it() {
        let [first, second] = [IpAddr::from([10, 0, 0, 1]), "::1".parse().unwrap()];
        let value = format_removals(vec![(first, 7), (second, 9)]);
        assert_eq!(value, "::1,9 10.0.0.1,7");
        for (endpoint, generation, is_named) in
            [(first, 6, true), (first, 7, true), (first, 8, false), (second, 9, true)]
        {
            assert_eq!(names_removal(&value, endpoint, generation), is_named, "{endpoint}");
        }
        for value in ["", " ", "10.0.0.1", "10.0.0.1,", "10.0.0.1,x", ",7", "10.0.0.2,9"] {
            assert!(!names_removal(value, first, 1), "{value}");
        }
        let node = |it| (IpAddr::from([10, 0, 0, it]), i32::from(it));
        let latest = format_removals((1..=70).map(node).collect());
        assert_eq!(latest.split(' ').count(), MOST_REMOVALS);
        let is_named = |it| names_removal(&latest, node(it).0, node(it).1);
        assert!(is_named(70) && is_named(7) && !is_named(6), "{latest}");
    }
}
