//! Delivers hints to nodes that are back.

use crate::model::schema::Schema;
use crate::net::Verb;
use crate::net::bodies;
use crate::net::messenger::{Messenger, Replies, Request};
use crate::replica::{HintError, HintStore};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes of hints that are on their way to a node at a time. The next ones wait until these are
/// acknowledged, so that a node that comes back is not buried under what it has missed.
const BATCH_BYTES: u64 = 128 << 10;

/// After a delivery that failed although the node seems alive, how long it is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(30);

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
}

/// Delivers hints, to each node by one task at a time, in the order in which they were kept.
#[derive(Debug)]
pub struct Handoff {
    options: HandoffOptions,
    state: Mutex<State>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct State {
    running: BTreeSet<IpAddr>,
    /// Nodes that are not tried before this monotonic time.
    put_off: BTreeMap<IpAddr, Duration>,
}

/// Tells a delivery who has acknowledged.
#[derive(Debug)]
struct Acknowledged(mpsc::UnboundedSender<bool>);

impl Replies for Acknowledged {
    fn on_reply(&self, _tag: u32, _from: IpAddr, _body: &[u8], _took: Duration) {
        // The delivery may have been given up.
        let _ = self.0.send(true);
    }

    fn on_timeout(&self, _tag: u32, _missing: &[IpAddr]) {
        let _ = self.0.send(false);
    }
}

/// How a delivery ended.
enum Ended {
    AllDelivered,
    TargetIsSilent,
    Failed(HintError),
}

impl Handoff {
    pub(super) fn new(options: HandoffOptions) -> Arc<Self> {
        let (state, stop) = (Mutex::default(), CancellationToken::new());
        Arc::new(Self { options, state, stop, tasks: TaskTracker::new() })
    }

    /// Begins to deliver what there is for a node that is back, unless that is under way. Must be
    /// called within a tokio runtime.
    pub(super) fn begin(self: &Arc<Self>, target: IpAddr) {
        if !self.options.hints.has(target) || !self.lock().running.insert(target) {
            return;
        }
        let handoff = Arc::clone(self);
        self.tasks.spawn(async move {
            let stop = handoff.stop.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = handoff.deliver(target) => {}
            }
            handoff.lock().running.remove(&target);
        });
    }

    /// Whether a node has hints waiting, is not being given any, and may be tried at this monotonic
    /// time.
    pub(super) fn is_due(&self, target: IpAddr, now: Duration) -> bool {
        if !self.options.hints.has(target) {
            return false;
        }
        let state = self.lock();
        !state.running.contains(&target) && state.put_off.get(&target).is_none_or(|it| *it <= now)
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

    async fn deliver(&self, target: IpAddr) {
        log::info!("Started hinted handoff for endPoint {target}");
        let mut rows = 0;
        let ended = loop {
            match self.deliver_batch(target).await {
                Ok(Some(delivered)) => rows += delivered,
                Ok(None) => break Ended::AllDelivered,
                Err(ended) => break ended,
            }
        };
        match ended {
            Ended::AllDelivered => {}
            Ended::TargetIsSilent => {
                log::info!("{target} does not acknowledge its hints; the rest waits");
                self.put_off(target);
            }
            Ended::Failed(error) => {
                log::warn!("the hints for {target} cannot be delivered: {error}");
                self.put_off(target);
            }
        }
        log::info!("Finished hinted handoff of {rows} rows to endpoint {target}");
    }

    /// Delivers some hints; `None` if there are none left.
    async fn deliver_batch(&self, target: IpAddr) -> Result<Option<usize>, Ended> {
        let HandoffOptions { hints, schema, messenger, pause } = &self.options;
        let batch = hints.read_batch(target, BATCH_BYTES).map_err(Ended::Failed)?;
        let Some(batch) = batch else { return Ok(None) };
        let (sender, mut acknowledged) = mpsc::unbounded_channel();
        let replies: Arc<dyn Replies> = Arc::new(Acknowledged(sender));
        let mut sent = 0;
        for hint in &batch.hints {
            let body = match bodies::encode_mutation(&hint.mutation, schema) {
                Ok(body) => body,
                Err(error) => {
                    log::warn!("a hint for {target} is left out: {error}");
                    continue;
                }
            };
            let (verb, headers) = (Verb::Mutation, Vec::new());
            let message = Request { verb, headers, body: &body, tag: 0 };
            if messenger.request(message, &[target], &replies).is_ok() {
                sent += 1;
            }
            if !pause.is_zero() {
                tokio::time::sleep(*pause).await;
            }
        }
        for _ in 0..sent {
            if acknowledged.recv().await != Some(true) {
                return Err(Ended::TargetIsSilent);
            }
        }
        hints.acknowledge(batch.end);
        Ok(Some(sent))
    }

    fn put_off(&self, target: IpAddr) {
        let until = self.options.messenger.now() + RETRY_AFTER;
        self.lock().put_off.insert(target, until);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
