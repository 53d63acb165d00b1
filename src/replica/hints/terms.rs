//! Which hints may still be delivered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use log::warn;

use super::error::HintError;
use crate::base::lock::{Mutex, rank};
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::schema::Schema;
use crate::net::bodies;
use crate::net::message::MAX_BODY_BYTES;

/// Families that are warned about one by one; beyond that nobody reads on.
const MAX_WARNINGS: usize = 100;

/// What decides whether a hint is delivered.
#[derive(Debug)]
pub(super) struct Terms {
    schema: Arc<Schema>,
    max_age: Duration,
    /// Families that a warning was written about.
    warned: Mutex<rank::State, BTreeSet<(String, String)>>,
}

/// What is to be done with a hint.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is delivered.
    Deliver(RowMutation),
    /// It is too old: what it deletes or overwrites may be forgotten elsewhere by now.
    Expired,
    /// It is for a column family that is not configured any more, or is another one now.
    Unconfigured,
    /// It is sound on the disk and no mutation all the same.
    Malformed,
}

impl Terms {
    pub(super) fn new(schema: Arc<Schema>, max_age: Duration) -> Self {
        Self { schema, max_age, warned: Mutex::default() }
    }

    /// Whether a mutation fits into a message. One that can never be sent would hold up the hints
    /// behind it until it is too old.
    pub(super) fn check_size(&self, mutation: &RowMutation) -> Result<(), HintError> {
        // On the wire a cell takes less than twice as much as here, and what stands around them
        // takes little.
        if mutation.record().len() <= MAX_BODY_BYTES / 4 {
            return Ok(());
        }
        // What cannot be encoded for another reason is left out when it is to be delivered.
        let bytes = bodies::encode_mutation(mutation, &self.schema).map_or(0, |body| body.len());
        if bytes > MAX_BODY_BYTES {
            return Err(HintError::TooLarge { bytes: bytes as u64, limit: MAX_BODY_BYTES as u64 });
        }
        Ok(())
    }

    /// Whether a hint of this age is too old, whatever it is for.
    pub(super) fn is_expired(&self, created_ms: u64, now_ms: u64) -> bool {
        let age = age(created_ms, now_ms);
        age > self.max_age || self.schema.families().all(|(_, family)| age > family.gc_grace)
    }

    /// Whether and how this hint is delivered. A deletion may be purged on the replicas that have
    /// it when its grace period is over, and a write that comes in after that would bring back
    /// what was deleted: so no hint outlives the shortest grace period of its families.
    pub(super) fn judge(&self, record: &[u8], created_ms: u64, now_ms: u64) -> Verdict {
        let age = age(created_ms, now_ms);
        if age > self.max_age {
            return Verdict::Expired;
        }
        match RowMutation::decode(record, &self.schema) {
            Ok(mutation) => {
                let is_over = |id| age > self.schema.family(id).gc_grace;
                if mutation.families.iter().any(|it| is_over(it.family)) {
                    Verdict::Expired
                } else {
                    Verdict::Deliver(mutation)
                }
            }
            Err(DecodeError::Malformed(_)) => Verdict::Malformed,
            Err(error) => {
                self.warn_once(&error);
                Verdict::Unconfigured
            }
        }
    }

    fn warn_once(&self, error: &DecodeError) {
        let (DecodeError::UnknownFamily { keyspace, family }
        | DecodeError::OtherNames { keyspace, family }) = error
        else {
            return;
        };
        let mut warned = self.warned.lock();
        if warned.len() < MAX_WARNINGS && warned.insert((keyspace.clone(), family.clone())) {
            warn!("hints for {keyspace}.{family} are not delivered: {error}");
        }
    }
}

/// A hint that was stored in the future, on a clock that was wrong, is new.
fn age(created_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis(now_ms.saturating_sub(created_ms))
}
