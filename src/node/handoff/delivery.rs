//! One delivery of hints to one node.

use super::{BATCH_BYTES, Handoff, Trouble};
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::net::Verb;
use crate::net::bodies;
use crate::net::messenger::{Replies, Request};
use crate::replica::{Abandoned, Hint, HintBatch, HintError, HintPosition, HintStore};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Attempts before a hint is put aside, if the node acknowledges others meanwhile.
pub(super) const ATTEMPTS: u32 = 3;

/// Characters of a row key in the log.
const SHOWN: usize = 60;

/// End of a delivery.
#[derive(Debug)]
pub(super) enum Ended {
    AllDelivered,
    /// Remaining hints were put aside, or follow such a hint.
    RestIsAside,
    TargetIsSilent,
    /// The target seems dead, or this node stops.
    Interrupted,
    Failed(DeliveryError),
}

/// Failure of this node to deliver hints.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error(transparent)]
    Hints(#[from] HintError),
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
}

/// A delivery under way.
pub(super) struct Delivery<'a> {
    handoff: &'a Handoff,
    /// The node that the hints were kept for.
    target: IpAddr,
    /// Recipient of the hints: the target, or the node that has its place.
    recipient: IpAddr,
    /// Hints that were acknowledged.
    pub(super) rows: usize,
    /// Hints that were put aside.
    pub(super) aside: usize,
    /// Position of the first of these.
    first_aside: Option<HintPosition>,
}

/// Sends the outcomes of requests to a delivery: the tag, and whether it was acknowledged.
#[derive(Debug)]
struct Acknowledged(mpsc::UnboundedSender<(u32, bool)>);

impl Replies for Acknowledged {
    fn on_reply(&self, tag: u32, _from: IpAddr, _body: &[u8], _took: Duration) {
        // The delivery may have ended.
        let _ = self.0.send((tag, true));
    }

    fn on_timeout(&self, tag: u32, _missing: &[IpAddr]) {
        let _ = self.0.send((tag, false));
    }
}

impl<'a> Delivery<'a> {
    /// A delivery that has not begun.
    pub(super) fn new(handoff: &'a Handoff, target: IpAddr, recipient: IpAddr) -> Self {
        Self { handoff, target, recipient, rows: 0, aside: 0, first_aside: None }
    }

    /// Delivers hints until none are left, or until it fails.
    pub(super) async fn run(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.deliver_batch().await {
                return ended;
            }
        }
    }

    /// Delivers a batch, or puts unacknowledged hints aside.
    async fn deliver_batch(&mut self) -> Result<(), Ended> {
        let target = self.target;
        let batch = self.at_the_disk(move |hints| hints.read_batch(target, BATCH_BYTES)).await?;
        let Some(HintBatch { hints: mut left, end }) = batch else {
            return Err(Ended::AllDelivered);
        };
        let mut attempts = 0;
        while !left.is_empty() {
            let before = left.len();
            left = self.send(left).await;
            let Some(first) = left.first() else { break };
            if left.len() == before && !self.acknowledges_anything(first).await {
                return Err(Ended::TargetIsSilent);
            }
            attempts += 1;
            if attempts >= ATTEMPTS || left.iter().all(|hint| self.is_expected(hint)) {
                self.put_aside(left).await?;
                break;
            }
        }
        self.handoff.hints.acknowledge(end);
        let is_before = |first: HintPosition| end < first;
        if self.first_aside.is_none_or(is_before) { Ok(()) } else { Err(Ended::RestIsAside) }
    }

    /// Sends hints, waits for the answers, and returns the unacknowledged ones.
    async fn send(&mut self, hints: Vec<Hint>) -> Vec<Hint> {
        let (sender, mut outcomes) = mpsc::unbounded_channel();
        let replies: Arc<dyn Replies> = Arc::new(Acknowledged(sender));
        let mut is_done = vec![false; hints.len()];
        let mut sent = 0;
        for (tag, (hint, is_done)) in hints.iter().zip(&mut is_done).enumerate() {
            // One that was dropped since may exist again, without its old rows.
            if !hint.mutation.has_families(&self.handoff.schema) {
                *is_done = true;
                continue;
            }
            match self.request(&hint.mutation, tag as u32, &replies) {
                Ok(()) => sent += 1,
                Err(error) => {
                    log::warn!("a hint for {} is left out: {error}", self.recipient);
                    *is_done = true;
                }
            }
            let pause = self.handoff.pause;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        for _ in 0..sent {
            let Some((tag, is_acknowledged)) = outcomes.recv().await else { break };
            if is_acknowledged {
                self.note_acknowledged();
            }
            if let Some(is_done) = is_done.get_mut(tag as usize) {
                *is_done = is_acknowledged;
            }
        }
        let outcomes = hints.into_iter().zip(is_done);
        outcomes.filter(|(_, is_done)| !is_done).map(|(hint, _)| hint).collect()
    }

    /// Counts an acknowledged hint. The first one proves that the delivery works, and is logged.
    fn note_acknowledged(&mut self) {
        if self.rows == 0 {
            log::info!("Started hinted handoff for endPoint {}", self.recipient);
        }
        self.rows += 1;
    }

    /// Whether the node acknowledges anything, if not these hints: empty writes to the same row.
    /// They take the way of all writes, and need no column family; one in each keyspace, since a
    /// node may lack some.
    async fn acknowledges_anything(&self, like: &Hint) -> bool {
        let schema = &self.handoff.schema;
        let (sender, mut outcomes) = mpsc::unbounded_channel();
        let replies: Arc<dyn Replies> = Arc::new(Acknowledged(sender));
        let mut sent = 0;
        for keyspace in schema.keyspaces().iter().filter(|it| *it != SYSTEM_KEYSPACE) {
            let nothing = MutationBuilder::new(schema, keyspace, like.mutation.key.as_bytes());
            sent += usize::from(self.request(&nothing.finish(), 0, &replies).is_ok());
        }
        for _ in 0..sent {
            if let Some((_, true)) = outcomes.recv().await {
                return true;
            }
        }
        false
    }

    fn request(
        &self,
        mutation: &RowMutation,
        tag: u32,
        replies: &Arc<dyn Replies>,
    ) -> Result<(), String> {
        let Handoff { schema, messenger, .. } = self.handoff;
        let checked = messenger.check_cells(mutation, self.recipient);
        let body = checked.and_then(|()| bodies::encode_mutation(mutation, schema));
        let body = body.map_err(|e| e.to_string())?;
        let (verb, headers) = (Verb::Mutation, Vec::new());
        let message = Request { verb, headers, body: &body, tag };
        messenger.request(message, &[self.recipient], replies).map_err(|e| e.to_string())
    }

    /// Whether hints like this one were put aside for the node before, so that one attempt is
    /// enough.
    fn is_expected(&self, hint: &Hint) -> bool {
        let state = self.handoff.lock();
        let is_in = |Trouble { families, .. }: &Trouble| {
            hint.mutation.families.iter().any(|part| families.contains(&part.family))
        };
        state.troubles.get(&self.target).is_some_and(is_in)
    }

    /// Runs work on the hints that may wait for their disk.
    async fn at_the_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&HintStore) -> Result<T, HintError> + Send + 'static,
    ) -> Result<T, Ended> {
        let hints = Arc::clone(&self.handoff.hints);
        let done = self.handoff.spawner.run(move || job(&hints)).await;
        let done = done.map_err(|abandoned| Ended::Failed(abandoned.into()))?;
        done.map_err(|error| Ended::Failed(error.into()))
    }

    async fn put_aside(&mut self, left: Vec<Hint>) -> Result<(), Ended> {
        let target = self.target;
        let put_aside = move |hints: &HintStore| Ok((hints.put_aside(target, &left)?, left));
        let (first, left) = self.at_the_disk(put_aside).await?;
        self.first_aside.get_or_insert(first);
        self.aside += left.len();
        let mut state = self.handoff.lock();
        let trouble = state.troubles.entry(self.target).or_default();
        for hint in &left {
            for part in &hint.mutation.families {
                if trouble.families.insert(part.family) {
                    self.warn(hint, &self.handoff.schema.family(part.family).name);
                }
            }
        }
        Ok(())
    }

    /// Logs a refused hint, once for each column family: most are refused for one reason.
    fn warn(&self, Hint { mutation, .. }: &Hint, family: &str) {
        let (target, keyspace) = (self.recipient, mutation.keyspace());
        let mut key = mutation.key.to_string();
        if let Some((end, _)) = key.char_indices().nth(SHOWN) {
            key.truncate(end);
            key.push_str("...");
        }
        log::warn!(
            "{target} does not acknowledge a hint for {keyspace}.{family}, row {key}, although it \
             acknowledges other writes. It is put aside and tried again until it is too old, as \
             are others like it; those behind go on. See what the log of {target} says of it and \
             whether {target} has this column family; what is not delivered before its age is \
             over, reads at QUORUM or ALL will have to repair"
        );
    }
}
