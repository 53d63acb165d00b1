//! Statements: where requests of the protocol become operations of the service.

use super::error::CqlError;
use super::events::Events;
use super::protocol::Execute;
use super::reply::Reply;
use super::request::Work;
use super::session::Session;
use crate::service::{Grants, Service};
use std::sync::Arc;

/// Answers requests about statements.
#[derive(Debug)]
pub struct Executor {
    service: Arc<Service>,
    _events: Arc<Events>,
}

impl Executor {
    /// An executor on a service, which tells clients of changed schemas.
    pub fn new(service: Arc<Service>, events: Arc<Events>) -> Self {
        Self { service, _events: events }
    }
}

impl Execute for Executor {
    async fn execute(
        &self,
        _session: &Session,
        _work: &Work<'_>,
        _reply: &mut Reply<'_>,
    ) -> Result<(), CqlError> {
        Err(CqlError::invalid("no statements are known yet"))
    }

    fn only_reads(&self, _id: &[u8]) -> bool {
        false
    }

    fn requires_login(&self) -> bool {
        self.service.requires_login()
    }

    async fn log_in(
        &self,
        session: &Session,
        user: String,
        password: String,
    ) -> Result<Option<Grants>, CqlError> {
        Ok(self.service.authenticate(session.login(), user, password).await?)
    }
}
