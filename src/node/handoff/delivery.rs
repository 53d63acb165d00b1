//! One delivery of hints to one node.

use super::{BATCH_BYTES, Handoff, HandoffOptions};
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::net::Verb;
use crate::net::bodies;
use crate::net::messenger::{Replies, Request};
use crate::replica::{Abandoned, Hint, HintBatch, HintError, HintPosition, HintStore};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// So often a hint is sent before it is put aside, if the node acknowledges others meanwhile.
pub(super) const ATTEMPTS: u32 = 3;

/// So many characters of a row key are shown in the log.
const SHOWN: usize = 60;

/// How a delivery ended.
#[derive(Debug)]
pub(super) enum Ended {
    AllDelivered,
    /// What is left was put aside, or stored behind such a hint.
    RestIsAside,
    TargetIsSilent,
    /// The target seems dead, or this node stops.
    Interrupted,
    Failed(DeliveryError),
}

/// Why hints cannot be delivered, although the target may take them.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error(transparent)]
    Hints(#[from] HintError),
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
}

/// What a delivery works with, and has done.
pub(super) struct Delivery<'a> {
    handoff: &'a Handoff,
    /// Whom the hints were kept for.
    target: IpAddr,
    /// Recipient of the hints: the target, or the node that has its place.
    recipient: IpAddr,
    /// Hints that were acknowledged.
    pub(super) rows: usize,
    /// Hints that were put aside.
    pub(super) aside: usize,
    /// Where the first of these stands.
    first_aside: Option<HintPosition>,
}

/// Tells a delivery what became of its requests: the tag, and whether it was acknowledged.
#[derive(Debug)]
struct Acknowledged(mpsc::UnboundedSender<(u32, bool)>);

impl Replies for Acknowledged {
    fn on_reply(&self, tag: u32, _from: IpAddr, _body: &[u8], _took: Duration) {
        // The delivery may have been given up.
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

    /// Delivers what there is, as far as it can be done.
    pub(super) async fn run(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.deliver_batch().await {
                return ended;
            }
        }
    }

    /// Delivers some hints, or puts those aside that are not acknowledged.
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
        self.handoff.options.hints.acknowledge(end);
        let is_before = |first: HintPosition| end < first;
        if self.first_aside.is_none_or(is_before) { Ok(()) } else { Err(Ended::RestIsAside) }
    }

    /// Sends hints, waits for the answers, and returns those that were not acknowledged.
    async fn send(&mut self, hints: Vec<Hint>) -> Vec<Hint> {
        let (sender, mut outcomes) = mpsc::unbounded_channel();
        let replies: Arc<dyn Replies> = Arc::new(Acknowledged(sender));
        let mut is_done = vec![false; hints.len()];
        let mut sent = 0;
        for (tag, (hint, is_done)) in hints.iter().zip(&mut is_done).enumerate() {
            match self.request(&hint.mutation, tag as u32, &replies) {
                Ok(()) => sent += 1,
                Err(error) => {
                    log::warn!("a hint for {} is left out: {error}", self.recipient);
                    *is_done = true;
                }
            }
            let pause = self.handoff.options.pause;
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

    /// Counts a hint that was acknowledged. With the first one it is certain that there is somebody
    /// to deliver to, and worth a line in the log.
    fn note_acknowledged(&mut self) {
        if self.rows == 0 {
            log::info!("Started hinted handoff for endPoint {}", self.recipient);
        }
        self.rows += 1;
    }

    /// Whether the node acknowledges anything, if not these hints: writes to the same row that
    /// change nothing. They go the way of all writes, and no column family has to be there for
    /// them; one in each keyspace, because a node may lack some.
    async fn acknowledges_anything(&self, like: &Hint) -> bool {
        let schema = &self.handoff.options.schema;
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
        let HandoffOptions { schema, messenger, .. } = &self.handoff.options;
        let body = bodies::encode_mutation(mutation, schema).map_err(|e| e.to_string())?;
        let (verb, headers) = (Verb::Mutation, Vec::new());
        let message = Request { verb, headers, body: &body, tag };
        messenger.request(message, &[self.recipient], replies).map_err(|e| e.to_string())
    }

    /// Whether hints like this one were put aside for the node before, so that one attempt tells
    /// enough.
    fn is_expected(&self, hint: &Hint) -> bool {
        let state = self.handoff.lock();
        let trouble = state.troubles.get(&self.target);
        let is_in = |trouble: &super::Trouble| {
            hint.mutation.families.iter().any(|part| trouble.families.contains(&part.family))
        };
        trouble.is_some_and(is_in)
    }

    /// Does with the hints what may wait for their disk.
    async fn at_the_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&HintStore) -> Result<T, HintError> + Send + 'static,
    ) -> Result<T, Ended> {
        let HandoffOptions { hints, blocking, .. } = &self.handoff.options;
        let hints = Arc::clone(hints);
        let done = blocking.run(move || job(&hints)).await;
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
                    self.warn(hint, &self.handoff.options.schema.family(part.family).name);
                }
            }
        }
        Ok(())
    }

    /// Once for each column family: of many hints that are refused most are so for one reason.
    fn warn(&self, Hint { mutation, .. }: &Hint, family: &str) {
        let (target, keyspace) = (self.recipient, mutation.keyspace());
        let key = Shortened(mutation.key.to_string());
        log::warn!(
            "{target} does not acknowledge a hint for {keyspace}.{family}, row {key}, although it \
             acknowledges other writes. It is put aside and tried again until it is too old, as \
             are others like it; those behind go on. See what the log of {target} says of it and \
             whether {target} has this column family; what is not delivered before its age is \
             over, reads at QUORUM or ALL will have to repair"
        );
    }
}

/// The beginning of a text.
struct Shortened(String);

impl fmt::Display for Shortened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{}...", self.0.get(..end).unwrap_or_default()),
            None => f.write_str(&self.0),
        }
    }
}
