//! The application state `X-ALEXANDRA-PLAN`: what a node says of a place on the ring besides
//! `MOVE`. Originals store it and pass it on, and do not act on it.
//!
//! ```text
//! remove,<address>,<token>      the others take over the ranges of that node, then it is removed
//! replace,<address>,<token>     the sender, which has no place yet, collects the data of that node
//! replaced,<address>,<token>    the sender has the token, and that node must not come back to it
//! arrived,<address>,<token>     the sender has only just joined, and some may not know it yet
//! gone,<address>,<token>        the sender has only just left, and some may not know it yet
//! (empty)                       nothing
//! ```

use crate::ring::{Partitioner, Token};
use std::net::IpAddr;

/// What a node says of a place on the ring, mostly that of a dead one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The ranges of this dead node go to the other members.
    Remove(NodePlace),
    /// Whoever says so gets the token of this dead node.
    Replace(NodePlace),
    /// Whoever says so has got the token of this dead node.
    Replaced(NodePlace),
    /// Whoever says so has only just got this place. Writes go to the former replicas as well, from
    /// which some may still read.
    Arrived(NodePlace),
    /// Whoever says so has only just left this place. The same.
    Gone(NodePlace),
}

/// A node and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlace {
    /// Who.
    pub endpoint: IpAddr,
    /// The token that it owns, or owned.
    pub token: Token,
}

impl Plan {
    /// Reads a value; none if it says nothing, or what this version does not know.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_written_back() {
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
    }

    #[test]
    fn what_makes_no_sense_is_no_plan() {
        for value in ["", "remove", "remove,10.0.0.1", "remove,x,5", "remove,10.0.0.1,x", "a,b,c"] {
            assert_eq!(Plan::parse(Partitioner::Random, value), None, "{value}");
        }
    }
}
