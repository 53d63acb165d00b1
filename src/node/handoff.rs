//! Delivers hints to nodes that are back.

mod delivery;

use self::delivery::{Delivery, Ended};
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::base::worker::Spawner;
use crate::model::schema::{FamilyId, Schema};
use crate::net::messenger::Messenger;
use crate::replica::{HintStore, TargetStats};
use crate::ring::TokenMetadata;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Unacknowledged bytes of hints to a node. Further hints wait for acknowledgements, so that a node
/// that comes back is not overloaded.
const BATCH_BYTES: u64 = 128 << 10;

/// Pause after a delivery that failed although the node seems alive.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Longest pause for a node that does not take some of its hints. Hints after those wait as long.
const LONGEST_PAUSE: Duration = Duration::from_secs(240);

/// Delivers hints, to each node by one task at a time, in the order in which they were kept.
#[derive(Debug)]
pub struct Handoff {
    pub(super) hints: Arc<HintStore>,
    schema: Arc<Schema>,
    messenger: Arc<Messenger>,
    /// `hinted_handoff_throttle`: the pause after each hint.
    pause: Duration,
    /// Reads hints. Deliveries run on the threads of gossip and messages.
    spawner: Spawner,
    state: Mutex<rank::State, State>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// State of the hints for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffState {
    /// They are being delivered.
    Delivering,
    /// A delivery failed; the next one begins after this time at the earliest.
    PutOff(Duration),
    /// They are delivered as soon as the node is alive.
    Waiting,
}

#[derive(Debug, Default)]
struct State {
    /// Deliveries under way, by the node that the hints were kept for.
    running: BTreeMap<IpAddr, Running>,
    /// Nodes that are not tried before this monotonic time.
    put_off: BTreeMap<IpAddr, Duration>,
    troubles: BTreeMap<IpAddr, Trouble>,
    /// Number of deliveries that have ended, failed ones included.
    ended: u64,
    /// The last seen ring.
    ring: TokenMetadata,
}

#[derive(Debug)]
struct Running {
    /// Receiver of the hints.
    recipient: IpAddr,
    interruption: CancellationToken,
}

/// Trouble with a node that takes some hints and not others.
#[derive(Debug, Default)]
struct Trouble {
    /// Column families of refused hints, each logged once.
    families: BTreeSet<FamilyId>,
    /// The last pause.
    pause: Duration,
}

impl Handoff {
    pub(super) fn new(
        hints: Arc<HintStore>,
        schema: Arc<Schema>,
        messenger: Arc<Messenger>,
        pause: Duration,
        spawner: Spawner,
    ) -> Arc<Self> {
        let (state, stop, tasks) = Default::default();
        Arc::new(Self { hints, schema, messenger, pause, spawner, state, stop, tasks })
    }

    /// Begins to deliver all hints for a node that is back. Must be called within a tokio runtime.
    pub(super) fn begin_to(self: &Arc<Self>, recipient: IpAddr) {
        let waiting = self.hints.waiting().into_iter();
        waiting.filter(|(_, it)| *it == recipient).for_each(|(target, _)| self.begin(target));
    }

    /// Begins to deliver the hints for a target, to it or the node that has its place, unless that
    /// is under way. Must be called within a tokio runtime.
    pub(super) fn begin(self: &Arc<Self>, target: IpAddr) {
        if !self.hints.has(target) {
            return;
        }
        let (recipient, interruption) = (self.hints.recipient(target), self.stop.child_token());
        match self.lock().running.entry(target) {
            Entry::Occupied(_) => return,
            Entry::Vacant(vacant) => {
                vacant.insert(Running { recipient, interruption: interruption.clone() })
            }
        };
        let handoff = Arc::clone(self);
        self.tasks.spawn(async move {
            handoff.deliver(target, recipient, &interruption).await;
            let mut state = handoff.lock();
            state.running.remove(&target);
            state.ended += 1;
        });
    }

    /// Ends deliveries to a node that seems dead. They begin again when the node is back.
    pub(super) fn interrupt(&self, recipient: IpAddr) {
        let state = self.lock();
        let to_it = state.running.values().filter(|running| running.recipient == recipient);
        to_it.for_each(|running| running.interruption.cancel());
    }

    /// Whether a node has hints, gets none at the moment, and may be tried at this monotonic time.
    pub(super) fn is_due(&self, target: IpAddr, now: Duration) -> bool {
        if !self.hints.has(target) {
            return false;
        }
        let state = self.lock();
        !state.running.contains_key(&target)
            && state.put_off.get(&target).is_none_or(|it| *it <= now)
    }

    /// The state of the hints for a node at this monotonic time.
    pub fn state_of(&self, target: IpAddr, now: Duration) -> HandoffState {
        let state = self.lock();
        if state.running.contains_key(&target) {
            return HandoffState::Delivering;
        }
        match state.put_off.get(&target) {
            Some(until) if *until > now => HandoffState::PutOff(until.saturating_sub(now)),
            _ => HandoffState::Waiting,
        }
    }

    /// Numbers of deliveries under way and ended since the start.
    pub fn deliveries(&self) -> (usize, u64) {
        let state = self.lock();
        (state.running.len(), state.ended)
    }

    /// Ends the pause of a node, whose hints are delivered at the next round of gossip if it is
    /// alive. Returns whether there was a pause.
    pub fn hasten(&self, target: IpAddr) -> bool {
        self.lock().put_off.remove(&target).is_some()
    }

    /// Ends deliveries. Unacknowledged hints are delivered again later.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn deliver(&self, target: IpAddr, recipient: IpAddr, interruption: &CancellationToken) {
        let mut delivery = Delivery::new(self, target, recipient);
        let ended = tokio::select! {
            biased;
            () = interruption.cancelled() => Ended::Interrupted,
            ended = delivery.run() => ended,
        };
        let Delivery { rows, aside, .. } = delivery;
        match ended {
            Ended::AllDelivered => {
                self.lock().troubles.remove(&target);
            }
            Ended::Interrupted => {
                if rows > 0 {
                    log::info!("Stopped hinted handoff to endpoint {recipient} after {rows} rows");
                }
                return;
            }
            Ended::RestIsAside => {
                let pause = self.next_pause(target);
                log::info!(
                    "{aside} hints that {recipient} does not acknowledge are tried again in {} s",
                    pause.as_secs()
                );
                self.put_off(target, pause);
            }
            Ended::TargetIsSilent => {
                log::info!("{recipient} does not acknowledge its hints; the rest waits");
                self.put_off(target, RETRY_AFTER);
            }
            Ended::Failed(error) => {
                log::warn!("the hints for {target} cannot be delivered: {error}");
                self.put_off(target, RETRY_AFTER);
            }
        }
        if rows > 0 {
            log::info!("Finished hinted handoff of {rows} rows to endpoint {recipient}");
        }
    }

    /// The next pause of a node that does not take some hints: longer each time.
    fn next_pause(&self, target: IpAddr) -> Duration {
        let mut state = self.lock();
        let trouble = state.troubles.entry(target).or_default();
        trouble.pause = (trouble.pause * 2).clamp(RETRY_AFTER, LONGEST_PAUSE);
        trouble.pause
    }

    fn put_off(&self, target: IpAddr, pause: Duration) {
        let until = self.messenger.now() + pause;
        self.lock().put_off.insert(target, until);
    }

    /// Takes the saved ring. The saved owners of hints may be older than it.
    pub(super) fn start(&self, ring: &TokenMetadata) {
        let hints = &self.hints;
        for (_, endpoint) in ring.members() {
            hints.clear_owner(endpoint);
        }
        self.lock().ring = ring.clone();
        for TargetStats { target, bytes, .. } in hints.targets() {
            match hints.recipient(target) {
                owner if owner != target => {
                    log::info!("there are hints for {target}: {bytes} bytes, which {owner} gets");
                }
                _ => log::info!("there are hints for {target}: {bytes} bytes"),
            }
        }
        if let Some(line) = self.strangers(ring) {
            log::warn!("{line}");
        }
    }

    /// A log line about hints for nodes that have no place on the ring.
    fn strangers(&self, ring: &TokenMetadata) -> Option<String> {
        let hints = &self.hints;
        let targets = hints.targets().into_iter().filter(|it| {
            let recipient = hints.recipient(it.target);
            ring.token(recipient).is_none()
        });
        let line =
            |it: TargetStats| format!("{} ({} hints, {} bytes)", it.target, it.hints, it.bytes);
        let list = targets.map(line).collect::<Vec<_>>().join(", ");
        (!list.is_empty()).then(|| {
            format!(
                "there are hints for nodes that are not in the ring: {list}. They are delivered if \
                 these come back, and kept until they are too old (HintMaxAgeHours)"
            )
        })
    }

    /// Takes a changed ring. A node that took the place of another gets its hints.
    pub(super) fn follow(&self, ring: &TokenMetadata) {
        let before = {
            let mut state = self.lock();
            if state.ring == *ring {
                return;
            }
            std::mem::replace(&mut state.ring, ring.clone())
        };
        let hints = &self.hints;
        for (token, from) in before.members().filter(|(_, it)| ring.token(*it).is_none()) {
            let count = self.count_for(from);
            if let Some(to) = ring.owner(token) {
                if count > 0 {
                    log::info!("{to} has taken the place of {from} and gets its {count} hints");
                }
                hints.set_owner(from, to);
                self.interrupt(from);
                self.hasten(from);
            } else if count > 0 {
                log::info!(
                    "{from} has left the ring: {count} hints for it are delivered if it comes \
                     back, and kept until they are too old (HintMaxAgeHours)"
                );
            }
        }
        for (_, endpoint) in ring.members() {
            if hints.clear_owner(endpoint) {
                log::info!("{endpoint} has a place of its own and gets its hints");
            }
        }
    }

    /// Approximate number of hints for a node.
    fn count_for(&self, recipient: IpAddr) -> u64 {
        let hints = &self.hints;
        let targets = hints.targets().into_iter();
        targets.filter(|it| hints.recipient(it.target) == recipient).map(|it| it.hints).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests;
