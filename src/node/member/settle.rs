//! The wait of a starting node for the ring.

use super::Member;
use crate::gossip::RING_DELAY;
use crate::net::extensions;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait of a starting node for any news, before it serves on its own.
pub(in crate::node) const JOIN_PATIENCE: Duration = Duration::from_secs(10);

/// The same if others answer and ignore its state. They have just forgotten a node at this address,
/// or are about to, and those of 0.6 ignore it for [`RING_DELAY`] after that.
const FORGOTTEN_PATIENCE: Duration = RING_DELAY.saturating_add(Duration::from_secs(20));

/// Longest wait for each known member of the ring.
const MEMBER_PATIENCE: Duration = Duration::from_secs(4);

/// Pause between two looks.
const JOIN_POLL: Duration = Duration::from_millis(20);

/// A starting node's knowledge of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Knowledge {
    /// No node of the cluster has sent anything.
    Nothing,
    /// Others answer, and have not sent the ring.
    Answers,
    /// Some nodes have sent the ring, and not all members.
    Some,
    /// All members have sent the ring.
    All,
}

impl Knowledge {
    /// Longest wait for more knowledge.
    fn patience(self) -> Duration {
        match self {
            Self::Nothing => JOIN_PATIENCE,
            Self::Answers => FORGOTTEN_PATIENCE,
            Self::Some => MEMBER_PATIENCE,
            Self::All => Duration::ZERO,
        }
    }
}

impl Member {
    /// Waits until the ring is known as well as can be expected, so that the first client does not
    /// miss rows that others have, and its writes reach joining nodes. [`Member::run`] must be
    /// running.
    pub async fn settle(&self) {
        if self.is_alone() {
            return;
        }
        let (mut knowledge, mut since) = (Knowledge::Nothing, Instant::now());
        loop {
            let current = self.knowledge();
            if current > knowledge {
                (knowledge, since) = (current, Instant::now());
            }
            if since.elapsed() >= knowledge.patience() {
                self.warn_of_silence(knowledge);
                return;
            }
            tokio::time::sleep(JOIN_POLL).await;
        }
    }

    /// Waits until this node has followed what others have of registers, as the schema: a node that
    /// joins collects the rows of the tables that it has. `patience` is for one that has its rows.
    pub async fn catch_up(&self, patience: Option<Duration>) {
        let (begun, mut warned) = (Instant::now(), Instant::now());
        loop {
            let news = self.compare_registers(&mut self.lock());
            let Some(first) = news.first() else { return };
            let is_over = patience.is_some_and(|patience| begun.elapsed() >= patience);
            if is_over || warned.elapsed() >= JOIN_PATIENCE {
                let next = if is_over { "serves without it" } else { "waits" };
                log::warn!(
                    "{} has a newer schema, and this node does not follow it yet: it {next}",
                    first.from
                );
                warned = Instant::now();
            }
            if is_over {
                return;
            }
            self.learn(news);
            tokio::time::sleep(JOIN_POLL).await;
        }
    }

    /// Whether there are no other seeds, and no members that the last start knew.
    fn is_alone(&self) -> bool {
        let local = self.local;
        let gossip = self.lock();
        let is_other = |endpoint: &IpAddr| *endpoint != local;
        !self.seeds.iter().any(is_other)
            && !gossip.membership.members().endpoints().iter().any(is_other)
    }

    fn knowledge(&self) -> Knowledge {
        let gossip = self.lock();
        let gossiper = &gossip.gossiper;
        // A node may send the ring before its own first news, and counts as dead until these come.
        let has_told = |it: IpAddr| {
            let tells = gossiper.is_briefed_by(it) || !gossiper.announces(it, extensions::CALLS);
            gossiper.is_alive(it) && tells
        };
        let mut others = gossiper.endpoints().filter(|(it, _)| *it != self.local);
        if !others.any(|(it, _)| has_told(it)) {
            let is_answered = gossiper.is_answered;
            return if is_answered { Knowledge::Answers } else { Knowledge::Nothing };
        }
        let members = gossip.membership.members().endpoints();
        let all_have = members.into_iter().filter(|it| *it != self.local).all(has_told);
        if all_have { Knowledge::All } else { Knowledge::Some }
    }

    /// Warns the operator that the wait has ended without the others.
    fn warn_of_silence(&self, knowledge: Knowledge) {
        let what = match knowledge {
            Knowledge::Nothing => "answered",
            Knowledge::Answers => "told of the ring",
            Knowledge::Some | Knowledge::All => return,
        };
        let others = self.seeds.iter().filter(|seed| **seed != self.local);
        let seeds: Vec<String> = others.map(|seed| format!("seed {seed}")).collect();
        let asked =
            if seeds.is_empty() { "member of the ring".to_owned() } else { seeds.join(", ") };
        log::warn!(
            "no other node has {what} for {} s ({asked}): serving on. If this node is to join \
             others, see that they run, that ListenAddress and StoragePort are right, that \
             ClusterName is the same, and that they are of 0.6.1 or later: older releases cannot \
             share a ring with this server",
            knowledge.patience().as_secs(),
        );
    }
}
