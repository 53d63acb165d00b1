//! Statements: where requests of the protocol become operations of the service.

use super::Events;
use super::error::CqlError;
use super::reply::Reply;
use super::request::Work;
use super::session::Session;
use crate::service::Service;
use std::sync::Arc;

/// Answers requests about statements.
#[derive(Debug)]
pub struct Executor {
    _service: Arc<Service>,
    _events: Arc<Events>,
}

impl Executor {
    /// An executor on a service, which tells clients of changed schemas.
    pub fn new(service: Arc<Service>, events: Arc<Events>) -> Self {
        Self { _service: service, _events: events }
    }

    /// Answers a request. Nothing of what was written to the reply is sent after an error.
    pub async fn execute(
        &self,
        _session: &Session,
        _work: &Work<'_>,
        _reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        Err(CqlError::invalid("no statements are known yet"))
    }

    /// Whether the prepared statement with this id changes nothing, so that it may be given up when
    /// its client leaves.
    pub fn only_reads(&self, _id: &[u8]) -> bool {
        false
    }
}
