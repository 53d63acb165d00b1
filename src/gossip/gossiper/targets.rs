//! The choice of recipients of a round's SYN.

use super::Gossiper;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Silence after which a dead endpoint is not contacted any more, unless it is a seed.
const UNREACHABLE_SILENCE: Duration = Duration::from_secs(3 * 24 * 3600);

/// Most recipients in one round after a start or a pause.
const QUICK_TARGETS: usize = 64;

impl Gossiper {
    /// The recipients of this round's SYN: a member and at most one live endpoint without a place.
    /// So members hear of each other as often as they need, however many others gossip. As long as
    /// no member is known, every endpoint counts as one.
    pub(super) fn targets(&mut self) -> BTreeSet<IpAddr> {
        let mut targets = self.quick_targets();
        targets.extend(self.member_targets());
        targets.extend(self.catch_up.iter().flat_map(|it| it.awaited().take(QUICK_TARGETS)));
        let strangers: Vec<IpAddr> =
            self.peers_that(|endpoint| !self.counts_as_member(endpoint) && self.is_alive(endpoint));
        targets.extend(self.rng.choice(strangers));
        targets
    }

    /// A live member, now and then a dead one, and a seed unless enough members are alive, so that
    /// the parts of a split cluster find each other.
    fn member_targets(&mut self) -> BTreeSet<IpAddr> {
        let members = self.peers_that(|endpoint| self.counts_as_member(endpoint));
        let (live, mut dead): (Vec<IpAddr>, Vec<IpAddr>) =
            members.into_iter().partition(|member| self.is_alive(*member));
        dead.retain(|member| self.silence(*member, self.now) <= Some(UNREACHABLE_SILENCE));
        dead.extend(self.unheard.endpoints());
        let first = self.rng.choice(&live).copied();
        let mut targets: BTreeSet<IpAddr> = first.into_iter().collect();
        if self.rng.f64() < dead.len() as f64 / (live.len() + 1) as f64 {
            targets.extend(self.rng.choice(&dead));
        }
        let is_seed = first.is_some_and(|target| self.seeds.contains(&target));
        if !is_seed || live.len() < self.seeds.len() {
            let others = (live.len() + dead.len()) as f64;
            if live.is_empty() || self.rng.f64() <= self.seeds.len() as f64 / others {
                targets.extend(self.rng.choice(&self.seeds));
            }
        }
        targets
    }

    /// The unheard seeds and saved members, in the first rounds of a start.
    fn quick_targets(&mut self) -> BTreeSet<IpAddr> {
        if self.quick_rounds == 0 {
            return BTreeSet::new();
        }
        self.quick_rounds -= 1;
        let unheard = self.seeds.iter().copied().chain(self.unheard.endpoints());
        let mut targets: Vec<IpAddr> = unheard.filter(|&target| !self.is_alive(target)).collect();
        self.rng.shuffle(&mut targets);
        targets.into_iter().take(QUICK_TARGETS).collect()
    }

    fn counts_as_member(&self, endpoint: IpAddr) -> bool {
        self.members.is_empty() || self.members.contains(&endpoint)
    }

    fn peers_that(&self, is_meant: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
        self.peers.keys().copied().filter(|endpoint| is_meant(*endpoint)).collect()
    }
}
