//! What defects do to messages of operations on the ring, and to what nodes tell of removals.

use crate::cluster::schema;
use crate::defects::Defect;
use alexandra::gossip::{GossipMessage, MessageKind, REMOVED_STATE};
use alexandra::model::schema::FamilyId;
use alexandra::net::Verb;
use alexandra::net::bodies::PageReply;
use alexandra::net::extensions::CALL;
use alexandra::net::message::{Message, MessageId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Changes messages on their way.
#[derive(Debug, Default)]
pub(crate) struct Tampering {
    /// Of which family a page was asked for, by who asked whom by which number.
    pages: BTreeMap<(IpAddr, IpAddr, MessageId), FamilyId>,
}

impl Tampering {
    /// The message as it is to arrive; none if it stays as it is.
    pub(crate) fn change(&mut self, defect: Defect, to: IpAddr, message: &[u8]) -> Option<Vec<u8>> {
        let mut message = Message::decode(message).ok()?;
        if defect == Defect::RemovalsForgotten && is_request(message.verb) {
            message.from = alias(message.from);
            return message.encode().ok();
        }
        let body = match (defect, message.verb, message.header(CALL)) {
            (Defect::HeirsIdle, Verb::StreamRequest, Some(b"start")) => {
                without_ranges(message.body)?
            }
            (Defect::HearingSkipped, Verb::StreamRequest, Some(b"has-heard")) => {
                // The generation, and version 0.
                [message.body.get(..4)?, &[0; 4]].concat()
            }
            (Defect::PiecesIncomplete, Verb::StreamRequest, Some(b"page")) => {
                let is_super = message.body.windows(6).any(|it| it == b"Groups");
                let family = FamilyId(u32::from(is_super));
                self.pages.insert((message.from, to, message.id), family);
                return None;
            }
            (Defect::PiecesIncomplete, Verb::ReadResponse, None) => {
                let asked = (to, message.from, message.id.clone());
                let family = self.pages.remove(&asked)?;
                without_first_row(message.body, family)?
            }
            (Defect::RemovalsForgotten, Verb::GossipDigestAck, None) => {
                without_removals(MessageKind::Ack, message.body)?
            }
            (Defect::RemovalsForgotten, Verb::GossipDigestAck2, None) => {
                without_removals(MessageKind::Ack2, message.body)?
            }
            _ => return None,
        };
        message.body = &body;
        message.encode().ok()
    }
}

fn is_request(verb: Verb) -> bool {
    matches!(verb, Verb::Mutation | Verb::ReadRepair | Verb::Read | Verb::RangeSlice)
}

/// Another address of a node, which nobody has removed.
fn alias(node: IpAddr) -> IpAddr {
    in_network(1, node)
}

/// The node that has an address, which may be an alias.
pub(crate) fn owner(address: IpAddr) -> IpAddr {
    in_network(0, address)
}

fn in_network(network: u8, address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, _, c, d] = address.octets();
            IpAddr::from([a, network, c, d])
        }
        IpAddr::V6(_) => address,
    }
}

/// A gossip message that does not tell of removed nodes.
fn without_removals(kind: MessageKind, body: &[u8]) -> Option<Vec<u8>> {
    let mut message = GossipMessage::decode(kind, body).ok()?;
    let (GossipMessage::Ack { states, .. } | GossipMessage::Ack2 { states }) = &mut message else {
        return None;
    };
    for (_, state) in states {
        state.states.remove(REMOVED_STATE);
    }
    message.encode().ok()
}

/// A job that collects no ranges; none if it is another job.
fn without_ranges(body: &[u8]) -> Option<Vec<u8>> {
    let (head, _) = body.split_at_checked(9)?;
    // The number of the job, and which task it is.
    (head[8] == 0).then(|| [head, &[0; 4]].concat())
}

fn without_first_row(body: &[u8], family: FamilyId) -> Option<Vec<u8>> {
    let schema = schema();
    let schema = schema.family(family);
    let mut page = PageReply::decode(body, schema).ok()?;
    if !page.rows.rows.is_empty() {
        page.rows.rows.remove(0);
    }
    page.encode(schema).ok()
}
