//! Where messages of other nodes arrive.

use super::Member;
use crate::gossip::MessageKind;
use crate::net::extensions::CALL;
use crate::net::message::Message;
use crate::net::{Doing, Inbound, IncomingFile, Verb};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Receives for a member.
#[derive(Debug)]
pub struct Receiver(Arc<Member>);

impl Receiver {
    /// Receives for a member.
    pub fn new(member: Arc<Member>) -> Arc<Self> {
        Arc::new(Self(member))
    }
}

impl Inbound for Receiver {
    fn receive(&self, payload: &[u8]) {
        let Self(member) = self;
        let message = match Message::decode(payload) {
            Ok(message) => message,
            Err(error) => {
                // Who sent it is not known.
                let line = format_args!("a message of another node is not sound: {error}");
                member.messenger.warn(IpAddr::V4(Ipv4Addr::UNSPECIFIED), line);
                return;
            }
        };
        match message.verb {
            Verb::ReadResponse => member.messenger.on_response(&message),
            Verb::GossipDigestSyn => member.on_gossip(MessageKind::Syn, &message),
            Verb::GossipDigestAck => member.on_gossip(MessageKind::Ack, &message),
            Verb::GossipDigestAck2 => member.on_gossip(MessageKind::Ack2, &message),
            // The questions of a node that is about to join again are answered, and its calls are
            // refused one by one.
            verb if verb != Verb::BootstrapToken
                && message.header(CALL).is_none()
                && let Some(why) = member.coordinator.turns_away(message.from) =>
            {
                // The sender hears of its removal by gossip. Any answer to a write would count as
                // an acknowledgement there.
                let (from, verb) = (message.from, message.verb);
                member.drops.count(verb);
                member.messenger.warn(from, format_args!("a {verb} of {from} was not done: {why}"));
            }
            verb => {
                let is_taken =
                    member.responder.receive(&message) || member.operations.receive(&message);
                if !is_taken {
                    let from = message.from;
                    let line = format_args!("{from} sent a {verb}, which this version does not do");
                    member.messenger.warn(from, line);
                }
            }
        }
    }

    fn receive_file(&self, from: IpAddr, file: IncomingFile) -> Doing<'_, ()> {
        Box::pin(self.0.operations.receive_file(from, file))
    }
}
