//! Messages from other nodes.

use super::Member;
use crate::gossip::MessageKind;
use crate::net::extensions::{CALL, is_register_call};
use crate::net::message::{Message, MessageError};
use crate::net::{Doing, Inbound, IncomingFile, Verb};
use std::net::IpAddr;

impl Inbound for Member {
    fn receive(&self, payload: &[u8]) -> Result<(), MessageError> {
        let message = Message::decode(payload)?;
        match message.verb {
            Verb::ReadResponse => self.messenger.on_response(&message),
            Verb::GossipDigestSyn => self.on_gossip(MessageKind::Syn, &message),
            Verb::GossipDigestAck => self.on_gossip(MessageKind::Ack, &message),
            Verb::GossipDigestAck2 => self.on_gossip(MessageKind::Ack2, &message),
            // The questions of a node that is about to join again are answered, and its calls of
            // operations are refused one by one.
            verb if verb != Verb::BootstrapToken
                && (message.header(CALL).is_none() || is_register_call(&message))
                && let Some(why) = self.coordinator.turns_away(message.from) =>
            {
                // The sender hears of its removal by gossip. Any answer to a write would count as
                // an acknowledgement.
                let (from, verb) = (message.from, message.verb);
                self.drops.count(verb);
                self.messenger.warn(from, format_args!("a {verb} of {from} was not done: {why}"));
            }
            verb => {
                let is_taken =
                    self.responder.receive(&message) || self.operations.receive(&message);
                if !is_taken {
                    let from = message.from;
                    let line = format_args!("{from} sent a {verb}, which this version does not do");
                    self.messenger.warn(from, line);
                }
            }
        }
        Ok(())
    }

    fn receive_file(&self, from: IpAddr, file: IncomingFile) -> Doing<'_, ()> {
        Box::pin(self.operations.receive_file(from, file))
    }
}
