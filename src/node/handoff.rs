//! Delivers hints to nodes that are back.

mod delivery;
mod places;

use self::delivery::{Delivery, Ended};
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::schema::{FamilyId, Schema};
use crate::net::messenger::Messenger;
use crate::replica::{Blocking, HintStore};
use crate::ring::TokenMetadata;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes of hints that are on their way to a node at a time. The next ones wait until these are
/// acknowledged, so that a node that comes back is not buried under what it has missed.
const BATCH_BYTES: u64 = 128 << 10;

/// After a delivery that failed although the node seems alive, how long it is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// How long a node is left alone at most that does not take some of its hints. Those that come
/// behind wait as long.
const LONGEST_PAUSE: Duration = Duration::from_secs(240);

/// What a [`Handoff`] works with.
#[derive(Debug)]
pub struct HandoffOptions {
    /// The hints.
    pub hints: Arc<HintStore>,
    /// The column families that they are for.
    pub schema: Arc<Schema>,
    /// The way to the nodes.
    pub messenger: Arc<Messenger>,
    /// `hinted_handoff_throttle`: the pause after each hint.
    pub pause: Duration,
    /// Where hints are read. Deliveries run where gossip and messages do.
    pub blocking: Blocking,
}

/// Delivers hints, to each node by one task at a time, in the order in which they were kept.
#[derive(Debug)]
pub struct Handoff {
    options: HandoffOptions,
    state: Mutex<rank::State, State>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What is being done about the hints for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffState {
    /// They are being delivered.
    Delivering,
    /// A delivery has failed; the next one begins after so long at the earliest.
    PutOff(Duration),
    /// They are delivered as soon as the node is there.
    Waiting,
}

#[derive(Debug, Default)]
struct State {
    /// The deliveries that are under way, by whom the hints were kept for.
    running: BTreeMap<IpAddr, Running>,
    /// Nodes that are not tried before this monotonic time.
    put_off: BTreeMap<IpAddr, Duration>,
    troubles: BTreeMap<IpAddr, Trouble>,
    /// Deliveries that have ended, well or not.
    ended: u64,
    /// The ring when it was looked at last.
    ring: TokenMetadata,
}

#[derive(Debug)]
struct Running {
    /// Who gets the hints.
    recipient: IpAddr,
    interruption: CancellationToken,
}

/// A node that does not take some of its hints, although it takes others.
#[derive(Debug, Default)]
struct Trouble {
    /// Column families that these were for, and that were told in the log.
    families: BTreeSet<FamilyId>,
    /// How long the node was left alone for it the last time.
    pause: Duration,
}

impl Handoff {
    pub(super) fn new(options: HandoffOptions) -> Arc<Self> {
        let (state, stop) = (Mutex::default(), CancellationToken::new());
        Arc::new(Self { options, state, stop, tasks: TaskTracker::new() })
    }

    /// Begins to deliver all that there is for a node that is back. Must be called within a tokio
    /// runtime.
    pub(super) fn begin_to(self: &Arc<Self>, recipient: IpAddr) {
        let waiting = self.options.hints.waiting().into_iter();
        waiting.filter(|(_, it)| *it == recipient).for_each(|(target, _)| self.begin(target));
    }

    /// Begins to deliver what there is for a target, to it or the node that has its place, unless
    /// that is under way.
    /// Must be called within a tokio runtime.
    pub(super) fn begin(self: &Arc<Self>, target: IpAddr) {
        if !self.options.hints.has(target) {
            return;
        }
        let (recipient, interruption) =
            (self.options.hints.recipient(target), self.stop.child_token());
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

    /// Ends deliveries to a node that seems dead. They begin anew when the node is back.
    pub(super) fn interrupt(&self, recipient: IpAddr) {
        let state = self.lock();
        let to_it = state.running.values().filter(|running| running.recipient == recipient);
        to_it.for_each(|running| running.interruption.cancel());
    }

    /// Whether a node has hints waiting, is not being given any, and may be tried at this monotonic
    /// time.
    pub(super) fn is_due(&self, target: IpAddr, now: Duration) -> bool {
        if !self.options.hints.has(target) {
            return false;
        }
        let state = self.lock();
        !state.running.contains_key(&target)
            && state.put_off.get(&target).is_none_or(|it| *it <= now)
    }

    /// What is being done about the hints for a node at this monotonic time.
    pub(super) fn state_of(&self, target: IpAddr, now: Duration) -> HandoffState {
        let state = self.lock();
        if state.running.contains_key(&target) {
            return HandoffState::Delivering;
        }
        match state.put_off.get(&target) {
            Some(until) if *until > now => HandoffState::PutOff(until.saturating_sub(now)),
            _ => HandoffState::Waiting,
        }
    }

    /// Deliveries that are under way, and how many have ended since the start.
    pub(super) fn deliveries(&self) -> (usize, u64) {
        let state = self.lock();
        (state.running.len(), state.ended)
    }

    /// Lets a node be tried again at once. Whether it was put off.
    pub(super) fn hasten(&self, target: IpAddr) -> bool {
        self.lock().put_off.remove(&target).is_some()
    }

    /// Ends deliveries; what was not acknowledged is delivered again another time.
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

    /// How long a node is left alone that does not take some hints: longer each time.
    fn next_pause(&self, target: IpAddr) -> Duration {
        let mut state = self.lock();
        let trouble = state.troubles.entry(target).or_default();
        trouble.pause = (trouble.pause * 2).clamp(RETRY_AFTER, LONGEST_PAUSE);
        trouble.pause
    }

    fn put_off(&self, target: IpAddr, pause: Duration) {
        let until = self.options.messenger.now() + pause;
        self.lock().put_off.insert(target, until);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests;
