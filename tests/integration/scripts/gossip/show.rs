//! Rings, states and messages as gossip scripts print them.

use super::world::{Node, node_of};
use alexandra::gossip::{Digest, EndpointState, GossipMessage};
use alexandra::ring::{Partitioner, Token};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The ring as a node sees it.
pub(super) fn ring(node: &Node, only: Option<&[u8]>) -> String {
    let Node { gossiper, membership, .. } = node;
    let members = membership.members();
    let known = gossiper.endpoints().map(|(endpoint, _)| endpoint);
    let all: BTreeSet<IpAddr> = known.chain(members.endpoints()).collect();
    let is_shown = |it: &IpAddr| only.is_none_or(|only| only.contains(&node_of(*it)));
    let shown = all.into_iter().filter(is_shown).map(|endpoint| {
        let mut text = node_of(endpoint).to_string();
        if let Some(token) = members.ring.token(endpoint) {
            text.push_str(" at ");
            text.push_str(&Partitioner::Random.display_token(token));
        } else if let Some(token) = members.bootstrapping.get(&endpoint) {
            text.push_str(" joins ");
            text.push_str(&Partitioner::Random.display_token(token));
        } else {
            text += " without a place";
        }
        if members.leaving.contains(&endpoint) {
            text += " (leaving)";
        }
        if !gossiper.is_alive(endpoint) {
            text += " (dead)";
        }
        text
    });
    shown.collect::<Vec<String>>().join(", ")
}

pub(super) fn places<'a>(places: impl Iterator<Item = (&'a Token, IpAddr)>) -> String {
    let show = |(token, endpoint)| {
        format!("{} at {}", node_of(endpoint), Partitioner::Random.display_token(token))
    };
    let mut shown: Vec<String> = places.map(show).collect();
    shown.sort();
    shown.join(", ")
}

pub(super) fn or_nobody(text: String) -> String {
    if text.is_empty() { "nobody".to_owned() } else { text }
}

/// Digests in order. Those of addresses that a script made up are counted only.
fn show_digests(digests: &[Digest]) -> String {
    let (others, nodes): (Vec<&Digest>, Vec<&Digest>) =
        digests.iter().partition(|digest| node_of(digest.endpoint) == 0);
    let show =
        |it: &&Digest| format!(" {}@{}/{}", node_of(it.endpoint), it.generation, it.max_version);
    let mut shown: Vec<String> = nodes.iter().map(show).collect();
    shown.sort();
    if !others.is_empty() {
        shown.push(format!(" and {} others", others.len()));
    }
    if shown.is_empty() { " nothing".to_owned() } else { shown.concat() }
}

fn show_states(states: &[(IpAddr, EndpointState)]) -> String {
    let show = |(endpoint, state): &(IpAddr, EndpointState)| {
        format!(" {}", show_state(node_of(*endpoint), state))
    };
    if states.is_empty() { " nothing".to_owned() } else { states.iter().map(show).collect() }
}

/// A state as node, generation, version and its texts.
pub(super) fn show_state(node: u8, state: &EndpointState) -> String {
    let (generation, version) = state.age();
    let texts = state.in_version_order().into_iter();
    let texts = texts.map(|(name, value)| format!(" {name}={}", value.value));
    format!("{node}@{generation}/{version}{}", texts.collect::<Vec<String>>().concat())
}

pub(super) fn show_message(message: &GossipMessage) -> String {
    match message {
        GossipMessage::Syn { digests, .. } => format!("SYN knows{}", show_digests(digests)),
        GossipMessage::Ack { wanted, states } => {
            format!("ACK wants{}, tells{}", show_digests(wanted), show_states(states))
        }
        GossipMessage::Ack2 { states } => format!("ACK2 tells{}", show_states(states)),
    }
}
