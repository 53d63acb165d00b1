//! Peers: their queues and counters.

use super::Shared;
use super::queue::{Pushed, Queue, QueueLimits, Queued};
use crate::base::budget::Budget;
use crate::base::lock::{RwLock, rank};
use crate::net::frame::MAX_MESSAGE_BYTES;
use crate::net::message::Message;
use crate::net::transport::PeerStats;
use crate::net::verb::Channel;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A counter that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Another node, by its address.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// Whether messages to it get checksums.
    pub(super) checksums: AtomicBool,
    pub(super) sent: Counter,
    pub(super) sent_bytes: Counter,
    pub(super) received: Counter,
    pub(super) received_bytes: Counter,
    pub(super) connects: Counter,
    pub(super) failed_connects: Counter,
    pub(super) dropped_late: Counter,
    dropped_full: Counter,
    dropped_large: Counter,
    ack: Queue,
    command: Queue,
    bulk: Queue,
}

impl Peer {
    fn new(address: IpAddr, queued: &Arc<Budget>) -> Self {
        Self {
            address,
            checksums: AtomicBool::new(false),
            sent: Counter::default(),
            sent_bytes: Counter::default(),
            received: Counter::default(),
            received_bytes: Counter::default(),
            connects: Counter::default(),
            failed_connects: Counter::default(),
            dropped_late: Counter::default(),
            dropped_full: Counter::default(),
            dropped_large: Counter::default(),
            ack: Queue::new(queued),
            command: Queue::new(queued),
            bulk: Queue::new(queued),
        }
    }

    pub(super) fn queue(&self, channel: Channel) -> &Queue {
        match channel {
            Channel::Ack => &self.ack,
            Channel::Command => &self.command,
            Channel::Bulk => &self.bulk,
        }
    }

    /// Queues a message, unless it is dropped.
    pub(super) fn push(
        &self,
        channel: Channel,
        message: Arc<[u8]>,
        deadline: Duration,
        shared: &Shared,
    ) -> Pushed {
        if message.len() > MAX_MESSAGE_BYTES {
            self.dropped_large.add(1);
            shared
                .reporter
                .warn(self.address, format_args!("{}", too_large(&message, self.address)));
            return Pushed::Full;
        }
        let limits = QueueLimits {
            messages: shared.options.max_queued_messages,
            bytes: shared.options.max_queued_bytes,
        };
        let now = shared.clock.monotonic();
        let (pushed, late) = self.queue(channel).push(Queued { message, deadline }, now, limits);
        self.dropped_late.add(late);
        self.dropped_full.add(u64::from(matches!(pushed, Pushed::Full)));
        pushed
    }

    pub(super) fn stats(&self) -> PeerStats {
        let waiting = Channel::ALL.map(|channel| self.queue(channel).waiting());
        PeerStats {
            sent: self.sent.get(),
            sent_bytes: self.sent_bytes.get(),
            received: self.received.get(),
            received_bytes: self.received_bytes.get(),
            connects: self.connects.get(),
            failed_connects: self.failed_connects.get(),
            dropped_late: self.dropped_late.get(),
            dropped_full: self.dropped_full.get(),
            dropped_large: self.dropped_large.get(),
            queued: waiting.iter().map(|(messages, _)| *messages as u64).sum(),
            queued_bytes: waiting.iter().map(|(_, bytes)| *bytes as u64).sum(),
        }
    }

    fn is_idle(&self) -> bool {
        Channel::ALL.into_iter().all(|channel| self.queue(channel).is_idle())
    }
}

/// What the log says of a message that no frame can hold.
fn too_large(message: &[u8], to: IpAddr) -> String {
    let bytes = message.len();
    let verb = Message::decode(message).map(|it| it.verb.to_string()).unwrap_or_default();
    format!(
        "dropping a message of {bytes} bytes to {to} ({verb}): a frame holds {MAX_MESSAGE_BYTES}. \
         Write, or ask for, fewer columns or rows at a time"
    )
}

/// All peers by their addresses. When there are too many, those go to which nothing is open.
#[derive(Debug)]
pub(super) struct Peers {
    by_address: RwLock<rank::Job, BTreeMap<IpAddr, Arc<Peer>>>,
    most: usize,
    /// Memory for all queues.
    queued: Arc<Budget>,
}

impl Peers {
    pub(super) fn new(most: usize, queued: Arc<Budget>) -> Self {
        Self { by_address: RwLock::default(), most, queued }
    }

    /// The peer of this address, if there is one.
    pub(super) fn find(&self, address: IpAddr) -> Option<Arc<Peer>> {
        let peers = self.by_address.read();
        peers.get(&address).cloned()
    }

    /// The peer of this address, which is made if there is none; `None` if there are too many.
    pub(super) fn get(&self, address: IpAddr) -> Option<Arc<Peer>> {
        let found = self.find(address);
        if found.is_some() {
            return found;
        }
        let mut peers = self.by_address.write();
        if peers.len() >= self.most && !peers.contains_key(&address) {
            let idle = peers.extract_if(.., |_, peer| peer.is_idle());
            for (_, peer) in idle {
                for channel in Channel::ALL {
                    peer.queue(channel).close();
                }
            }
            if peers.len() >= self.most {
                return None;
            }
        }
        let peer =
            peers.entry(address).or_insert_with(|| Arc::new(Peer::new(address, &self.queued)));
        Some(Arc::clone(peer))
    }

    /// All peers in the order of their addresses.
    pub(super) fn all(&self) -> Vec<Arc<Peer>> {
        let peers = self.by_address.read();
        peers.values().cloned().collect()
    }
}
