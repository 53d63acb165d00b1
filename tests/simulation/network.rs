//! The simulated network. Messages are put into frames and read from them, as on a connection, and
//! wait in one queue until it is their time.

use crate::clock::NodeClock;
use crate::defects::Defect;
use crate::tampering::{Tampering, owner};
use alexandra::net::frame::{Frame, FrameReader, put_frame};
use alexandra::net::message::Message;
use alexandra::net::{Channel, Transport, Verb};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How the network treats messages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Of a thousand messages, so many are lost,
    pub(crate) lost: u32,
    /// come twice,
    pub(crate) doubled: u32,
    /// come out of order and late,
    pub(crate) strayed: u32,
    /// or have a flipped bit, on connections with checksums.
    pub(crate) damaged: u32,
}

/// Counts of messages by what happened to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NetworkStats {
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) strayed: u64,
    pub(crate) damaged: u64,
    pub(crate) cut_off: u64,
}

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    bytes: Vec<u8>,
}

/// Carrier of the messages of all nodes.
#[derive(Debug)]
pub(crate) struct Network {
    state: Mutex<State>,
    defect: Option<Defect>,
}

#[derive(Debug)]
struct State {
    rng: fastrand::Rng,
    weather: Weather,
    /// By the time of arrival in milliseconds, then in the order of sending.
    queue: BTreeMap<(u64, u64), Packet>,
    sent: u64,
    /// From whom to whom nothing gets through.
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    /// Nodes that are cut off until somebody connects them, each with those that it reaches all the
    /// same.
    isolated: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
    /// How much longer messages take from and to these nodes, in milliseconds.
    slow: BTreeMap<IpAddr, u64>,
    /// When the last message of a channel arrives.
    last: BTreeMap<(IpAddr, IpAddr, Channel), u64>,
    stats: NetworkStats,
    tampering: Tampering,
    trace: DefaultHasher,
}

impl Network {
    pub(crate) fn new(seed: u64, defect: Option<Defect>) -> Self {
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            weather: Weather::default(),
            queue: BTreeMap::new(),
            sent: 0,
            cuts: BTreeSet::new(),
            isolated: BTreeMap::new(),
            slow: BTreeMap::new(),
            last: BTreeMap::new(),
            stats: NetworkStats::default(),
            tampering: Tampering::default(),
            trace: DefaultHasher::new(),
        };
        Self { state: Mutex::new(state), defect }
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    pub(crate) fn cut(&self, from: IpAddr, to: IpAddr) {
        self.lock().cuts.insert((from, to));
    }

    /// Heals all cuts; those who are isolated stay so.
    pub(crate) fn mend(&self) {
        self.lock().cuts.clear();
    }

    /// Cuts a node off from all others.
    pub(crate) fn isolate(&self, node: IpAddr) {
        self.lock().isolated.insert(node, BTreeSet::new());
    }

    /// Lets an isolated node reach one of the others again, and be reached by it.
    pub(crate) fn link(&self, isolated: IpAddr, other: IpAddr) {
        if let Some(reached) = self.lock().isolated.get_mut(&isolated) {
            reached.insert(other);
        }
    }

    /// Connects a node with all others.
    pub(crate) fn connect(&self, node: IpAddr) {
        self.lock().isolated.remove(&node);
    }

    /// Whether a node has no place yet.
    pub(crate) fn set_joining(&self, node: IpAddr, is_joining: bool) {
        self.lock().tampering.set_joining(node, is_joining);
    }

    pub(crate) fn set_slow(&self, node: IpAddr, by_ms: u64) {
        self.lock().slow.insert(node, by_ms);
    }

    pub(crate) fn stats(&self) -> NetworkStats {
        self.lock().stats
    }

    /// Trace that distinguishes this run from others: all messages with their times.
    pub(crate) fn trace(&self) -> u64 {
        self.lock().trace.finish()
    }

    /// When the next message arrives at a node that is not in this list.
    pub(crate) fn next_arrival(&self, except: &BTreeSet<IpAddr>) -> Option<u64> {
        let state = self.lock();
        let mut coming = state.queue.iter().filter(|(_, packet)| !except.contains(&packet.to));
        coming.next().map(|((at, _), _)| *at)
    }

    /// Takes out what has arrived by now; what is for these nodes waits.
    pub(crate) fn arrived(&self, now_ms: u64, except: &BTreeSet<IpAddr>) -> Vec<Packet> {
        let mut state = self.lock();
        let later = state.queue.split_off(&(now_ms + 1, 0));
        let arrived = std::mem::replace(&mut state.queue, later);
        let mut packets = Vec::new();
        for (place, packet) in arrived {
            if except.contains(&packet.to) {
                state.queue.insert(place, packet);
            } else {
                state.stats.delivered += 1;
                (place, packet.from, packet.to).hash(&mut state.trace);
                packet.bytes.hash(&mut state.trace);
                packets.push(packet);
            }
        }
        packets
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Packet {
    /// The message in it; `None` if it was damaged on its way, which the frame has to tell.
    pub(crate) fn message(&self) -> Option<Vec<u8>> {
        let mut reader = FrameReader::new();
        let mut bytes = &self.bytes[..];
        while !bytes.is_empty() {
            let space = reader.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            reader.filled(count);
            bytes = &bytes[count..];
        }
        match reader.next_frame() {
            Ok(Some(Frame::Message(message))) => Some(message.to_vec()),
            Ok(Some(Frame::FileStream) | None) | Err(_) => None,
        }
    }
}

impl State {
    fn chance(&mut self, of_thousand: u32) -> bool {
        of_thousand > 0 && self.rng.u32(..1000) < of_thousand
    }

    fn send(&mut self, now_ms: u64, from: IpAddr, to: IpAddr, channel: Channel, bytes: Vec<u8>) {
        let is_isolated = |node: &IpAddr, other: &IpAddr| {
            self.isolated.get(node).is_some_and(|reached| !reached.contains(other))
        };
        if self.cuts.contains(&(from, to)) || is_isolated(&from, &to) || is_isolated(&to, &from) {
            self.stats.cut_off += 1;
            return;
        }
        let Weather { lost, doubled, strayed, .. } = self.weather;
        if self.chance(lost) {
            self.stats.lost += 1;
            return;
        }
        let slow = |node| self.slow.get(&node).copied().unwrap_or(0);
        let slow = slow(from) + slow(to);
        let mut at = now_ms + 1 + self.rng.u64(..8) + slow;
        if self.rng.u32(..100) == 0 {
            at += self.rng.u64(..100);
        }
        if self.chance(strayed) {
            self.stats.strayed += 1;
            at += self.rng.u64(..3000);
        } else {
            let last = self.last.entry((from, to, channel)).or_default();
            at = at.max(*last);
            *last = at;
        }
        if self.chance(doubled) {
            self.stats.doubled += 1;
            let again = at + self.rng.u64(..5000);
            self.put(again, Packet { from, to, bytes: bytes.clone() });
        }
        self.put(at, Packet { from, to, bytes });
    }

    fn put(&mut self, at: u64, packet: Packet) {
        self.sent += 1;
        self.queue.insert((at, self.sent), packet);
    }
}

/// The way of one node into the network.
#[derive(Debug)]
pub(crate) struct SimTransport {
    local: IpAddr,
    network: Arc<Network>,
    clock: Arc<NodeClock>,
    /// Peers that check checksums.
    checksums: Mutex<BTreeSet<IpAddr>>,
}

impl SimTransport {
    pub(crate) fn new(local: IpAddr, network: Arc<Network>, clock: Arc<NodeClock>) -> Self {
        Self { local, network, clock, checksums: Mutex::default() }
    }
}

impl Transport for SimTransport {
    fn send(&self, to: IpAddr, channel: Channel, message: Arc<[u8]>, _deadline: Duration) {
        let to = owner(to);
        let mut message = message.to_vec();
        if self.network.defect == Some(Defect::MessageIdsRepeat) {
            message = with_small_id(&message).unwrap_or(message);
        }
        let mut state = self.network.lock();
        let mut later = None;
        if let Some(defect) = self.network.defect
            && let Some(tampered) = state.tampering.change(defect, to, &message)
        {
            (message, later) = (tampered.now, tampered.later);
        }
        let mut has_checksum = self.checksums.lock().unwrap().contains(&to);
        let has_no_checksum = self.network.defect == Some(Defect::ChecksumsIgnored);
        if has_no_checksum {
            has_checksum = false;
        }
        let mut bytes = Vec::new();
        assert!(put_frame(&mut bytes, &message, has_checksum), "messages are small");
        let damaged = state.weather.damaged;
        if (has_checksum || has_no_checksum) && state.chance(damaged) {
            state.stats.damaged += 1;
            // The end of the frame is the body of the message.
            let least = bytes.len() / 2;
            let at = state.rng.usize(least..bytes.len());
            bytes[at] ^= 1 << state.rng.u32(..8);
        }
        let now_ms = self.clock.elapsed().as_millis() as u64;
        state.send(now_ms, self.local, to, channel, bytes);
        if let Some(later) = later {
            let mut bytes = Vec::new();
            assert!(put_frame(&mut bytes, &later, has_checksum), "messages are small");
            let at = now_ms + state.rng.u64(100..1000);
            state.put(at, Packet { from: self.local, to, bytes });
        }
    }

    fn disconnect(&self, _peer: IpAddr) {}

    fn set_checksums(&self, peer: IpAddr, checksums: bool) {
        let mut all = self.checksums.lock().unwrap();
        if checksums {
            all.insert(peer)
        } else {
            all.remove(&peer)
        };
    }
}

/// A request under the number that it would have if each start began to count anew.
fn with_small_id(message: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Message::decode(message).ok()?;
    if decoded.verb == Verb::ReadResponse {
        return None;
    }
    decoded.id = (decoded.id.as_u64()? & u64::from(u32::MAX)).into();
    decoded.encode().ok()
}

/// The reverse for an answer, when the node that asked has this generation.
pub(crate) fn with_large_id(message: &[u8], generation: i32) -> Option<Vec<u8>> {
    let mut decoded = Message::decode(message).ok()?;
    if decoded.verb != Verb::ReadResponse {
        return None;
    }
    decoded.id = (decoded.id.as_u64()? + (u64::from(generation.unsigned_abs()) << 32)).into();
    decoded.encode().ok()
}
