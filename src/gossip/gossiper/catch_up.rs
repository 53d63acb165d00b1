//! A node that stood still asks the others for changes of the ring.

use super::super::event::GossipEvent;
use super::super::message::Digest;
use super::{Effects, Gossiper};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Rounds after which a node goes on without those that do not answer.
const MAX_ROUNDS: u32 = 5;

/// The rounds in which a node asks other members for changes of the ring.
///
/// Its sockets may hold answers from before the standstill. They are read before the second round,
/// so that only answers after that one count.
#[derive(Debug)]
pub(super) struct CatchUp {
    rounds: u32,
    /// Members that have not answered yet.
    awaited: BTreeSet<IpAddr>,
    /// When the second round was. Later news are not from before the standstill.
    asked: Option<Duration>,
}

impl CatchUp {
    fn new(awaited: BTreeSet<IpAddr>) -> Self {
        Self { rounds: 0, awaited, asked: None }
    }

    fn begin_round(&mut self, now: Duration) {
        self.rounds += 1;
        if self.rounds == 2 {
            self.asked = Some(now);
        }
    }

    /// A node has answered.
    pub(super) fn hear(&mut self, from: IpAddr) {
        if self.asked.is_some() {
            self.awaited.remove(&from);
        }
    }

    /// Whether all have answered, or had the time to.
    fn is_over(&self) -> bool {
        self.awaited.is_empty() || self.rounds > MAX_ROUNDS
    }

    /// Members that have not answered yet.
    pub(super) fn awaited(&self) -> impl Iterator<Item = IpAddr> {
        self.awaited.iter().copied()
    }
}

impl Gossiper {
    /// Until when the ring is to be taken for the present one if there is no other round: others
    /// may have convicted this node after that, and changed the ring without it. Zero after a
    /// longer pause, until other members have told what has changed, or did not answer in time.
    pub fn trusted_until(&self) -> Duration {
        match (&self.catch_up, self.last_round) {
            (None, Some(round)) => round + self.detector.harmless_pause(),
            _ => Duration::ZERO,
        }
    }

    /// Whether the sender of a SYN has not heard of a live endpoint that has a place, or is about
    /// to: it may have stood still while that came, and an ACK cannot tell of it.
    pub(super) fn misses_one(&self, digests: &[Digest]) -> bool {
        let listed: BTreeSet<IpAddr> = digests.iter().map(|digest| digest.endpoint).collect();
        self.peers.iter().any(|(endpoint, peer)| {
            peer.is_alive && peer.state.tells_of_place() && !listed.contains(endpoint)
        })
    }

    /// Begins to ask other members for what has changed after a pause in which they may have
    /// convicted this node, and ends that. Those that do not answer are dead.
    pub(super) fn review_pause(&mut self, now: Duration, effects: &mut Effects) {
        let pause = self.last_round.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        self.last_round = Some(self.last_round.map_or(now, |last| last.max(now)));
        if pause > self.detector.harmless_pause() {
            effects.events.push(GossipEvent::StoodStill { pause });
            let others: BTreeSet<IpAddr> =
                self.members.iter().copied().filter(|it| *it != self.local).collect();
            let live = others.iter().copied().filter(|it| self.is_alive(*it)).collect();
            let awaited = if BTreeSet::is_empty(&live) { others } else { live };
            self.catch_up = Some(CatchUp::new(awaited));
        }
        let Some(catch_up) = &mut self.catch_up else { return };
        catch_up.begin_round(now);
        if !catch_up.is_over() {
            return;
        }
        let asked = catch_up.asked;
        let silent: Vec<IpAddr> = catch_up.awaited().collect();
        self.catch_up = None;
        for endpoint in silent {
            if let Some(peer) = self.peers.get_mut(&endpoint)
                && peer.is_alive
                && asked.is_some_and(|asked| peer.updated <= asked)
            {
                peer.is_alive = false;
                effects.events.push(GossipEvent::Down { endpoint });
            }
        }
    }
}
