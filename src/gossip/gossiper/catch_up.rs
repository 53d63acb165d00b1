//! The requests of a node that paused, for changes of the ring.

use super::Gossiper;
use crate::gossip::event::GossipEvent;
use crate::gossip::message::Digest;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Rounds after which a node continues without those that do not answer.
const MAX_ROUNDS: u32 = 5;

/// The rounds in which a node asks other members for changes of the ring.
///
/// Its sockets may hold answers from before the pause. They are read before the second round, so
/// only answers after that one count.
#[derive(Debug)]
pub(super) struct CatchUp {
    rounds: u32,
    /// Members without an answer yet.
    awaited: BTreeSet<IpAddr>,
    /// Time of the second round. Later news are not from before the pause.
    asked: Option<Duration>,
}

impl CatchUp {
    /// Notes an answer.
    pub(super) fn hear(&mut self, from: IpAddr) {
        if self.asked.is_some() {
            self.awaited.remove(&from);
        }
    }

    /// Members without an answer yet.
    pub(super) fn awaited(&self) -> impl Iterator<Item = IpAddr> {
        self.awaited.iter().copied()
    }
}

impl Gossiper {
    /// The time until which the ring counts as up to date if there is no other round: after it
    /// others may have convicted this node, and changed the ring without it. Zero after a longer
    /// pause, until other members have sent the changes or have not answered in time.
    pub fn trusted_until(&self) -> Duration {
        match (&self.catch_up, self.last_round) {
            (None, Some(round)) => round + self.detector.harmless_pause(),
            _ => Duration::ZERO,
        }
    }

    /// Whether the sender of a SYN does not know a live endpoint that has or announces a place: it
    /// may have paused when that came, and an ACK cannot tell it.
    pub(super) fn misses_one(&self, digests: &[Digest]) -> bool {
        let listed: BTreeSet<IpAddr> = digests.iter().map(|digest| digest.endpoint).collect();
        self.peers.iter().any(|(endpoint, peer)| {
            peer.is_alive && peer.state.tells_of_place() && !listed.contains(endpoint)
        })
    }

    /// Begins to ask other members for changes after a pause in which they may have convicted this
    /// node, and ends that. Members that do not answer are dead.
    pub(super) fn review_pause(&mut self) {
        let now = self.now;
        let pause = self.last_round.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        self.last_round = Some(self.last_round.map_or(now, |last| last.max(now)));
        if pause > self.detector.harmless_pause() {
            self.effects.events.push(GossipEvent::StoodStill(pause));
            let others: BTreeSet<IpAddr> =
                self.members.iter().copied().filter(|it| *it != self.local).collect();
            let live: BTreeSet<IpAddr> =
                others.iter().copied().filter(|it| self.is_alive(*it)).collect();
            let awaited = if live.is_empty() { others } else { live };
            self.catch_up = Some(CatchUp { rounds: 0, awaited, asked: None });
        }
        let Some(catch_up) = &mut self.catch_up else { return };
        catch_up.rounds += 1;
        if catch_up.rounds == 2 {
            catch_up.asked = Some(now);
        }
        if !catch_up.awaited.is_empty() && catch_up.rounds <= MAX_ROUNDS {
            return;
        }
        let Some(CatchUp { awaited, asked, .. }) = self.catch_up.take() else { return };
        for endpoint in awaited {
            if let Some(peer) = self.peers.get_mut(&endpoint)
                && peer.is_alive
                && asked.is_some_and(|asked| peer.updated <= asked)
            {
                peer.is_alive = false;
                self.effects.events.push(GossipEvent::Down(endpoint));
            }
        }
    }
}
