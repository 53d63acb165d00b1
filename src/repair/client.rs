//! Calls of this node to others, and to itself.

use super::calls::Call;
use super::host::Host;
use super::service::{Refusal, Service};
use crate::base::lock::{Mutex, rank};
use crate::net::bodies::{Body, BodyError, EncodeError};
use crate::net::caller::{CallError, Caller};
use std::net::IpAddr;
use std::sync::Arc;

/// Calls replicas, of which this node may be one.
#[derive(Debug)]
pub(super) struct ReplicaClient {
    pub(super) local: IpAddr,
    caller: Caller,
    pub(super) service: Arc<Service>,
    rng: Mutex<rank::Random, fastrand::Rng>,
}

/// Why a call brought no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Local(#[from] Refusal),
    #[error("the call cannot be sent: {0}")]
    Encode(#[from] EncodeError),
    #[error("the answer of {from} makes no sense: {source}")]
    Senseless { from: IpAddr, source: BodyError },
}

impl ReplicaClient {
    pub(super) fn new(
        local: IpAddr,
        caller: Caller,
        service: Arc<Service>,
        seed: u64,
    ) -> Arc<Self> {
        let rng = Mutex::new(fastrand::Rng::with_seed(seed));
        Arc::new(Self { local, caller, service, rng })
    }

    /// Calls a node.
    pub(super) async fn ask<C: Call>(
        &self,
        to: IpAddr,
        call: &C,
        host: &Arc<dyn Host>,
    ) -> Result<C::Answer, AskError> {
        let context = self.service.context();
        let body = call.encode(context)?;
        let answer = if to == self.local {
            self.service.answer(to, C::NAME, &body, Arc::clone(host)).await?
        } else {
            self.caller.call(to, C::NAME, &body).await?
        };
        let senseless = |source| AskError::Senseless { from: to, source };
        C::Answer::decode(&answer, context).map_err(senseless)
    }

    /// A number that no job of any node has.
    pub(super) fn number(&self) -> u64 {
        self.rng.lock().u64(..)
    }
}
