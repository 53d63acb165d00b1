//! The node as operations on the ring see it.

use super::topology::Lifecycle;
use crate::gossip::{Members, NodePlace};
use crate::ring::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;

/// The ring at one moment, as this node knows it.
#[derive(Debug, Clone, Default)]
pub struct RingSnapshot {
    /// Who is where.
    pub members: Members,
    /// Who seems alive, members and others. This node itself is among them.
    pub live: BTreeSet<IpAddr>,
    /// Those that take calls. This node itself is among them.
    pub callable: BTreeSet<IpAddr>,
    /// How many bytes each says to have on its disks, as far as it has said so.
    pub loads: BTreeMap<IpAddr, f64>,
    /// Members that collect the data of their places, and are not read from meanwhile.
    pub incomplete: BTreeSet<IpAddr>,
    /// The last start of each node that was heard of.
    pub generations: BTreeMap<IpAddr, i32>,
    /// How often this node has given up on others that joined.
    pub given_up: u64,
    /// The token that the address of this node owned before this start, and the node that
    /// remembers it; none if others may have heard of this start.
    pub remembered: Option<(IpAddr, Token)>,
    /// Whether others have not heard of this start yet.
    pub is_hidden: bool,
    /// This node; none in a look at nothing.
    pub local: Option<IpAddr>,
}

impl RingSnapshot {
    /// Whether a node is one of 0.6, as far as is known: it takes no calls.
    pub fn is_legacy(&self, endpoint: IpAddr) -> bool {
        Some(endpoint) != self.local && !self.callable.contains(&endpoint)
    }
}

/// What a node says of its place, and by what others can tell whether they have heard it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// Its generation.
    pub generation: i32,
    /// The count at which it said so.
    pub version: i32,
}

/// The node whose place operations change. All methods may be called from any thread, and none
/// waits for other nodes.
pub trait Host: Send + Sync + Debug {
    /// The ring now.
    fn look(&self) -> RingSnapshot;

    /// Takes a place: says so to itself, and to the others from the next round of gossip on.
    fn announce(&self, place: &Lifecycle);

    /// Others know these as members. Takes them for that, as far as it has never heard of them:
    /// they were dead before anybody could tell it.
    fn learn(&self, members: &[NodePlace]);

    /// All agree that this node has the place that it has announced or is about to announce: what
    /// it acknowledges counts, and nothing that others remember of its address does.
    fn be_placed(&self);

    /// This node has all data of its place: it may be read from, as soon as it has one.
    fn serve_reads(&self);

    /// All know the place that this node has taken: nobody has to act any more as some might not.
    fn settle(&self);

    /// All that this node has said of itself until now, and by what others can tell whether they
    /// have heard it.
    fn said(&self) -> Announced;

    /// Whether it has heard what another node announced, or this one, and acts by it.
    fn has_heard(&self, of: IpAddr, announced: Announced) -> bool;

    /// The reason why nothing is done for a node that was removed, or by this node if it was.
    fn turns_away(&self, from: IpAddr) -> Option<&'static str>;

    /// Whether all writes have come to their end that it began before it knew the ring that it
    /// knows now: they have been acknowledged by all, or given up and become hints.
    fn is_quiet(&self) -> bool;
}
