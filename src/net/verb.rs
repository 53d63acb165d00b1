//! Kinds of messages, the connections that carry them, and counts of those that were dropped.

use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of messages. The numbers are sent: do not change them, and add none, since a node of
/// 0.6 that gets an unknown number reads nothing more on that connection. They are shown by their
/// names in its log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[repr(i32)]
#[display("{}", VERBS[*self as usize].1)]
pub enum Verb {
    /// Apply a row mutation and acknowledge it.
    Mutation = 0,
    /// A row of a bulk load, already in the form of a file.
    Binary = 1,
    /// Apply a row mutation without an acknowledgement.
    ReadRepair = 2,
    /// Read a slice of a row, or its digest.
    Read = 3,
    /// The answer to any verb that has one.
    ReadResponse = 4,
    /// These files will be streamed.
    StreamInitiate = 5,
    /// Ready for the files.
    StreamInitiateDone = 6,
    /// A file was received, or has to be sent again.
    StreamFinished = 7,
    /// Stream the data of these ranges.
    StreamRequest = 8,
    /// Read a slice of each row of a range.
    RangeSlice = 9,
    /// Propose a token that takes half of the data of the receiver.
    BootstrapToken = 10,
    /// Build the Merkle tree of a column family.
    TreeRequest = 11,
    /// A Merkle tree.
    TreeResponse = 12,
    /// Not sent by any 0.6.
    Join = 13,
    /// Gossip: digests of the states that the sender knows.
    GossipDigestSyn = 14,
    /// Gossip: newer states, and digests of those that are wanted.
    GossipDigestAck = 15,
    /// Gossip: the states that were wanted.
    GossipDigestAck2 = 16,
}

/// The verbs by number, with the names that 0.6 has in its log and the stages on which it runs
/// them. A node of 0.6 takes the stage from the message, so the text has to be exactly this.
const VERBS: [(Verb, &str, &str); 17] = [
    (Verb::Mutation, "MUTATION", "ROW-MUTATION-STAGE"),
    (Verb::Binary, "BINARY", "ROW-MUTATION-STAGE"),
    (Verb::ReadRepair, "READ_REPAIR", "ROW-MUTATION-STAGE"),
    (Verb::Read, "READ", "ROW-READ-STAGE"),
    (Verb::ReadResponse, "READ_RESPONSE", "RESPONSE-STAGE"),
    (Verb::StreamInitiate, "STREAM_INITIATE", ""),
    (Verb::StreamInitiateDone, "STREAM_INITIATE_DONE", ""),
    (Verb::StreamFinished, "STREAM_FINISHED", ""),
    (Verb::StreamRequest, "STREAM_REQUEST", "STREAM-STAGE"),
    (Verb::RangeSlice, "RANGE_SLICE", "ROW-READ-STAGE"),
    (Verb::BootstrapToken, "BOOTSTRAP_TOKEN", ""),
    (Verb::TreeRequest, "TREE_REQUEST", "AE-SERVICE-STAGE"),
    (Verb::TreeResponse, "TREE_RESPONSE", "AE-SERVICE-STAGE"),
    (Verb::Join, "JOIN", "GS"),
    (Verb::GossipDigestSyn, "GOSSIP_DIGEST_SYN", "GS"),
    (Verb::GossipDigestAck, "GOSSIP_DIGEST_ACK", "GS"),
    (Verb::GossipDigestAck2, "GOSSIP_DIGEST_ACK2", "GS"),
];

/// The connection to a peer that carries a message. Replies and gossip have their own, so that they
/// never wait for large requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
pub enum Channel {
    /// Replies and gossip.
    #[display("ack")]
    Ack,
    /// Requests.
    #[display("command")]
    Command,
    /// Data that one node of this program moves to another.
    #[display("bulk")]
    Bulk,
}

impl Channel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ack, Self::Command, Self::Bulk];
}

impl Verb {
    /// All verbs, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        VERBS.iter().map(|(verb, ..)| *verb)
    }

    /// The number that is sent.
    pub fn ordinal(self) -> i32 {
        self as i32
    }

    /// The verb of this number.
    pub fn from_ordinal(ordinal: i32) -> Option<Self> {
        VERBS.get(usize::try_from(ordinal).ok()?).map(|(verb, ..)| *verb)
    }

    /// The stage on which a node of 0.6 runs the message.
    pub fn stage(self) -> &'static str {
        VERBS[self as usize].2
    }

    /// The connection that carries the message.
    pub fn channel(self) -> Channel {
        match self.stage() {
            "RESPONSE-STAGE" | "GS" => Channel::Ack,
            _ => Channel::Command,
        }
    }
}

/// Numbers of messages that were not acted on, because their time was over or too many waited.
#[derive(Debug, Default)]
pub struct Drops {
    /// Since the start, and as of the last [`Drops::news`], by the number of the verb.
    counts: [(AtomicU64, AtomicU64); VERBS.len()],
}

impl Drops {
    /// Counts a message.
    pub fn count(&self, verb: Verb) {
        self.counts[verb as usize].0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number since the start.
    pub fn total(&self, verb: Verb) -> u64 {
        self.counts[verb as usize].0.load(Ordering::Relaxed)
    }

    /// The verbs of which messages were dropped since the last call, and how many.
    pub fn news(&self) -> Vec<(Verb, u64)> {
        let news = Verb::all().zip(&self.counts).map(|(verb, (total, told))| {
            let total = total.load(Ordering::Relaxed);
            (verb, total - told.swap(total, Ordering::Relaxed))
        });
        news.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_numbers() {
        for (i, verb) in Verb::all().enumerate() {
            assert_eq!(verb.ordinal(), i as i32);
            assert_eq!(Verb::from_ordinal(i as i32), Some(verb));
        }
        assert_eq!(Verb::from_ordinal(-1), None);
        assert_eq!(Verb::from_ordinal(17), None);
    }

    #[test]
    fn replies_and_gossip_do_not_wait_behind_requests() {
        let ack = Verb::all().filter(|verb| verb.channel() == Channel::Ack);
        let names: Vec<String> = ack.map(|verb| verb.to_string()).collect();
        let gossip = ["JOIN", "GOSSIP_DIGEST_SYN", "GOSSIP_DIGEST_ACK", "GOSSIP_DIGEST_ACK2"];
        assert_eq!(names, [&["READ_RESPONSE"][..], &gossip].concat());
    }

    #[test]
    fn news_are_told_once() {
        let drops = Drops::default();
        drops.count(Verb::Read);
        drops.count(Verb::Read);
        drops.count(Verb::Mutation);
        assert_eq!(drops.news(), [(Verb::Mutation, 1), (Verb::Read, 2)]);
        assert_eq!(drops.news(), []);
        drops.count(Verb::Read);
        assert_eq!((drops.news(), drops.total(Verb::Read)), (vec![(Verb::Read, 1)], 3));
    }
}
