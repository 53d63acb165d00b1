//! The state of one connection.

use super::error::CqlError;
use super::events::Registration;
use super::frame::opcode;
use crate::base::lock::{Mutex, rank};
use crate::service::{self, Access, Service};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// How far a connection has come. The numbers are those of [`Session::stage`].
const BEGUN: u8 = 0;
const AUTHENTICATING: u8 = 1;
const READY: u8 = 2;

/// The state of one connection, which its requests share.
#[derive(Debug)]
pub struct Session {
    peer: SocketAddr,
    login: service::Session,
    stage: AtomicU8,
    compresses: AtomicBool,
    keyspace: Mutex<rank::State, Option<Arc<str>>>,
    pub(super) registration: OnceLock<Registration>,
}

impl Session {
    pub(super) fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            login: service::Session::from(peer),
            stage: AtomicU8::new(BEGUN),
            compresses: AtomicBool::new(false),
            keyspace: Mutex::new(None),
            registration: OnceLock::new(),
        }
    }

    /// The client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The session of the service, which takes part in logins.
    pub(super) fn login(&self) -> &service::Session {
        &self.login
    }

    /// The keyspace of USE.
    pub fn keyspace(&self) -> Option<Arc<str>> {
        self.keyspace.lock().clone()
    }

    /// Sets the keyspace of later statements.
    pub fn use_keyspace(&self, keyspace: &str) {
        *self.keyspace.lock() = Some(Arc::from(keyspace));
    }

    /// Fails unless the user may use the keyspace so.
    pub(super) fn check_access(
        &self,
        service: &Service,
        keyspace: &str,
        access: Access,
    ) -> Result<(), CqlError> {
        service.check_grants(&self.login, keyspace, access).map_err(CqlError::unauthorized)
    }

    /// Whether bodies may be compressed.
    pub(super) fn compresses(&self) -> bool {
        self.compresses.load(Ordering::Acquire)
    }

    /// Fails if it is not the turn of a request.
    pub(super) fn check_turn(&self, code: u8) -> Result<(), CqlError> {
        let expected = match (self.stage.load(Ordering::Acquire), code) {
            (READY, opcode::STARTUP) => "the connection is already initialized",
            (BEGUN, opcode::STARTUP | opcode::OPTIONS) => return Ok(()),
            (BEGUN, _) => "expecting STARTUP or OPTIONS",
            (AUTHENTICATING, opcode::AUTH_RESPONSE) => return Ok(()),
            (AUTHENTICATING, _) => "expecting SASL_RESPONSE",
            (_, opcode::AUTH_RESPONSE) => "nobody has to log in",
            _ => return Ok(()),
        };
        let name = opcode::request_name(code).unwrap_or_default();
        Err(CqlError::protocol(format!("Unexpected message {name}, {expected}")))
    }

    /// STARTUP was accepted.
    pub(super) fn begin(&self, compresses: bool, requires_login: bool) {
        self.compresses.store(compresses, Ordering::Release);
        let stage = if requires_login { AUTHENTICATING } else { READY };
        self.stage.store(stage, Ordering::Release);
    }

    /// The login succeeded.
    pub(super) fn log_in(&self) {
        self.stage.store(READY, Ordering::Release);
    }
}
