//! What a message asks for.

use std::fmt;

/// The kinds of messages. The numbers are sent: do not change them, and add none, since a node of
/// 0.6 that gets a number it does not know goes deaf on that connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum Verb {
    /// Apply a row mutation and acknowledge it.
    Mutation = 0,
    /// A row of a bulk load, already in the form of a file.
    Binary = 1,
    /// Apply a row mutation; nobody waits for that.
    ReadRepair = 2,
    /// Read a slice of a row, or its digest.
    Read = 3,
    /// The answer to any verb that has one, whatever that was.
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
    /// Gossip: what I know, in short.
    GossipDigestSyn = 14,
    /// Gossip: what I know better, and what I want to know.
    GossipDigestAck = 15,
    /// Gossip: what you wanted to know.
    GossipDigestAck2 = 16,
}

/// Which of the connections to a peer carries a message. Replies and gossip have one of their
/// own, so that they never wait behind large requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// Replies and gossip.
    Ack,
    /// Requests.
    Command,
    /// Data that one node of this program moves to another, so that nothing else waits behind them.
    Bulk,
}

impl Channel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ack, Self::Command, Self::Bulk];
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ack => "ack",
            Self::Command => "command",
            Self::Bulk => "bulk",
        })
    }
}

impl Verb {
    /// All verbs, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Mutation,
        Self::Binary,
        Self::ReadRepair,
        Self::Read,
        Self::ReadResponse,
        Self::StreamInitiate,
        Self::StreamInitiateDone,
        Self::StreamFinished,
        Self::StreamRequest,
        Self::RangeSlice,
        Self::BootstrapToken,
        Self::TreeRequest,
        Self::TreeResponse,
        Self::Join,
        Self::GossipDigestSyn,
        Self::GossipDigestAck,
        Self::GossipDigestAck2,
    ];

    /// The number that is sent.
    pub fn ordinal(self) -> i32 {
        self as i32
    }

    /// The verb of this number.
    pub fn from_ordinal(ordinal: i32) -> Option<Self> {
        Self::ALL.get(usize::try_from(ordinal).ok()?).copied()
    }

    /// The name of the stage that a node of 0.6 runs the message on. It takes what the message
    /// says, so that it has to be exactly this.
    pub fn stage(self) -> &'static str {
        match self {
            Self::Mutation | Self::Binary | Self::ReadRepair => "ROW-MUTATION-STAGE",
            Self::Read | Self::RangeSlice => "ROW-READ-STAGE",
            Self::ReadResponse => "RESPONSE-STAGE",
            Self::StreamRequest => "STREAM-STAGE",
            Self::TreeRequest | Self::TreeResponse => "AE-SERVICE-STAGE",
            Self::Join | Self::GossipDigestSyn | Self::GossipDigestAck | Self::GossipDigestAck2 => {
                "GS"
            }
            Self::StreamInitiate
            | Self::StreamInitiateDone
            | Self::StreamFinished
            | Self::BootstrapToken => "",
        }
    }

    /// The connection that carries the message.
    pub fn channel(self) -> Channel {
        match self.stage() {
            "RESPONSE-STAGE" | "GS" => Channel::Ack,
            _ => Channel::Command,
        }
    }

    /// Whether a message that had to wait for longer than RpcTimeout is dropped unread: whoever
    /// sent it waits no more.
    pub fn is_shed(self) -> bool {
        matches!(
            self,
            Self::Mutation | Self::Binary | Self::ReadRepair | Self::Read | Self::RangeSlice
        )
    }

    /// Whether a reply comes back, which carries the id of the message.
    pub fn is_answered(self) -> bool {
        matches!(
            self,
            Self::Mutation | Self::Binary | Self::Read | Self::RangeSlice | Self::BootstrapToken
        )
    }
}

/// The name in log lines, as 0.6 had it.
impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutation => "MUTATION",
            Self::Binary => "BINARY",
            Self::ReadRepair => "READ_REPAIR",
            Self::Read => "READ",
            Self::ReadResponse => "READ_RESPONSE",
            Self::StreamInitiate => "STREAM_INITIATE",
            Self::StreamInitiateDone => "STREAM_INITIATE_DONE",
            Self::StreamFinished => "STREAM_FINISHED",
            Self::StreamRequest => "STREAM_REQUEST",
            Self::RangeSlice => "RANGE_SLICE",
            Self::BootstrapToken => "BOOTSTRAP_TOKEN",
            Self::TreeRequest => "TREE_REQUEST",
            Self::TreeResponse => "TREE_RESPONSE",
            Self::Join => "JOIN",
            Self::GossipDigestSyn => "GOSSIP_DIGEST_SYN",
            Self::GossipDigestAck => "GOSSIP_DIGEST_ACK",
            Self::GossipDigestAck2 => "GOSSIP_DIGEST_ACK2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_numbers() {
        for (i, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb.ordinal(), i as i32);
            assert_eq!(Verb::from_ordinal(i as i32), Some(verb));
        }
        assert_eq!(Verb::from_ordinal(-1), None);
        assert_eq!(Verb::from_ordinal(17), None);
    }

    #[test]
    fn replies_and_gossip_do_not_wait_behind_requests() {
        let ack = Verb::ALL.into_iter().filter(|verb| verb.channel() == Channel::Ack);
        let names: Vec<String> = ack.map(|verb| verb.to_string()).collect();
        let gossip = ["JOIN", "GOSSIP_DIGEST_SYN", "GOSSIP_DIGEST_ACK", "GOSSIP_DIGEST_ACK2"];
        assert_eq!(names, [&["READ_RESPONSE"][..], &gossip].concat());
    }
}
