//! Peers: their queues and counters.

use super::Shared;
use super::queue::{Pushed, Queue, QueueLimits, Queued};
use crate::base::budget::Budget;
use crate::base::lock::{Mutex, RwLock, rank};
use crate::net::frame::MAX_MESSAGE_BYTES;
use crate::net::message::Message;
use crate::net::transport::PeerStats;
use crate::net::verb::Channel;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Another node, by its address.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// Whether messages to it get checksums.
    pub(super) checksums: AtomicBool,
    /// All but the queued messages, which the queues count.
    stats: Mutex<rank::State, PeerStats>,
    /// By channel.
    queues: [Queue; 3],
}

impl Peer {
    fn new(address: IpAddr, memory: &Arc<Budget>) -> Self {
        let queues = Channel::ALL.map(|_| Queue::new(memory));
        Self { address, checksums: AtomicBool::new(false), stats: Mutex::default(), queues }
    }

    pub(super) fn queue(&self, channel: Channel) -> &Queue {
        &self.queues[channel as usize]
    }

    /// Updates the counters.
    pub(super) fn count(&self, update: impl FnOnce(&mut PeerStats)) {
        update(&mut self.stats.lock());
    }

    /// Counts messages that were dropped because their time was over.
    pub(super) fn count_late(&self, late: u64) {
        if late > 0 {
            self.count(|stats| stats.dropped_late += late);
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
            self.count(|stats| stats.dropped_large += 1);
            let line = too_large(&message, self.address);
            shared.reporter.warn(self.address, format_args!("{line}"));
            return Pushed::Full;
        }
        let limits = QueueLimits {
            messages: shared.options.max_queued_messages,
            bytes: shared.options.max_queued_bytes,
        };
        let now = shared.clock.monotonic();
        let (pushed, late) = self.queue(channel).push(Queued { message, deadline }, now, limits);
        self.count_late(late);
        if matches!(pushed, Pushed::Full) {
            self.count(|stats| stats.dropped_full += 1);
        }
        pushed
    }

    pub(super) fn stats(&self) -> PeerStats {
        let mut stats = *self.stats.lock();
        for (messages, bytes) in self.queues.iter().map(Queue::waiting) {
            stats.queued += messages as u64;
            stats.queued_bytes += bytes as u64;
        }
        stats
    }
}

/// The log line of a message that no frame can hold.
fn too_large(message: &[u8], to: IpAddr) -> String {
    let bytes = message.len();
    let verb = Message::decode(message).map(|it| it.verb.to_string()).unwrap_or_default();
    format!(
        "dropping a message of {bytes} bytes to {to} ({verb}): a frame holds {MAX_MESSAGE_BYTES}. \
         Write, or ask for, fewer columns or rows at a time"
    )
}

/// All peers by their addresses. When there are too many, idle ones are removed.
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

    /// The peer of this address, if it is known.
    pub(super) fn find(&self, address: IpAddr) -> Option<Arc<Peer>> {
        self.by_address.read().get(&address).cloned()
    }

    /// The peer of this address, which is added if it is new; `None` if there are too many.
    pub(super) fn get(&self, address: IpAddr) -> Option<Arc<Peer>> {
        if let Some(found) = self.find(address) {
            return Some(found);
        }
        let mut peers = self.by_address.write();
        if peers.len() >= self.most && !peers.contains_key(&address) {
            let is_idle = |peer: &Peer| peer.queues.iter().all(Queue::is_idle);
            for (_, peer) in peers.extract_if(.., |_, peer| is_idle(peer)) {
                peer.queues.iter().for_each(Queue::close);
            }
            if peers.len() >= self.most {
                return None;
            }
        }
        let new = || Arc::new(Peer::new(address, &self.queued));
        Some(Arc::clone(peers.entry(address).or_insert_with(new)))
    }

    /// All peers in the order of their addresses.
    pub(super) fn all(&self) -> Vec<Arc<Peer>> {
        self.by_address.read().values().cloned().collect()
    }
}
