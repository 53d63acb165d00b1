//! The contract with clients: one function for each Thrift method that validates its arguments,
//! translates them to the model, calls the coordinator and maps its errors.
//!
//! ```text
//!   service                   the methods, one line each
//!     reads, ranges, writes   data
//!       row_batch             the elements of a batch
//!       answers               what was found, written as the structs of the wire
//!     describe, schema_text   properties, keyspaces, ring
//!     login, login_turns, authenticator    who may log in, and how often
//!     family, keys, names, paths, predicates, levels    checks of arguments, in the order of 0.6
//!       invalid_request       all that can be wrong, with the texts of 0.6
//! ```

mod answers;
pub mod authenticator;
mod describe;
mod family;
pub mod invalid_request;
mod keys;
mod levels;
mod login;
mod login_turns;
mod names;
mod paths;
mod predicates;
mod ranges;
mod reads;
mod row_batch;
mod schema_text;
mod service;
#[cfg(test)]
mod tests;
mod writes;

pub use authenticator::{Authenticator, LoginError, SimpleAuthenticator};
pub use invalid_request::InvalidRequest;

use crate::base::clock::Clock;
use crate::config::settings::Release;
use crate::config::settings::{ColumnFamilySettings, KeyspaceSettings};
use crate::coordinator::Coordinator;
use crate::model::schema::{ColumnFamilySchema, Schema};
use crate::thrift::Failure;
use login_turns::LoginTurns;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the API needs to know.
#[derive(Debug)]
pub struct ApiOptions {
    /// `ClusterName`.
    pub cluster_name: String,
    /// Whose answers are given where generations differ (`ThriftRelease`).
    pub version: Release,
    /// All keyspaces and column families, `system` among them.
    pub schema: Arc<Schema>,
    /// The keyspaces as configured: what only `describe_keyspace` of 0.4 tells.
    pub keyspaces: Vec<KeyspaceSettings>,
    /// Text of the configuration file.
    pub config_text: String,
    /// Who may log in.
    pub authenticator: Authenticator,
    /// Dates deletions.
    pub clock: Arc<dyn Clock>,
    /// Does the work.
    pub coordinator: Arc<Coordinator>,
}

/// Answers the calls of clients.
#[derive(Debug, Clone)]
pub struct Api {
    cluster_name: String,
    version: Release,
    schema: Arc<Schema>,
    keyspaces: Vec<KeyspaceSettings>,
    config_text: String,
    authenticator: Authenticator,
    login_turns: Arc<LoginTurns>,
    clock: Arc<dyn Clock>,
    coordinator: Arc<Coordinator>,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    client: IpAddr,
    logged_in: AtomicBool,
}

impl From<SocketAddr> for Session {
    fn from(client: SocketAddr) -> Self {
        Self { client: client.ip(), logged_in: AtomicBool::new(false) }
    }
}

impl Api {
    /// The API of a node.
    pub fn new(options: ApiOptions) -> Self {
        let ApiOptions { cluster_name, version, schema, keyspaces, config_text, .. } = options;
        let ApiOptions { authenticator, clock, coordinator, .. } = options;
        Self {
            cluster_name,
            version,
            schema,
            keyspaces,
            config_text,
            authenticator,
            login_turns: Arc::default(),
            clock,
            coordinator,
        }
    }

    /// The same for clients of a generation.
    pub fn of(self: &Arc<Self>, version: Release) -> Arc<Self> {
        if version == self.version {
            return Arc::clone(self);
        }
        Arc::new(Self { version, ..(**self).clone() })
    }

    /// What does the work.
    pub fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    fn family_settings(&self, family: &ColumnFamilySchema) -> Option<&ColumnFamilySettings> {
        let keyspace = self.keyspaces.iter().find(|keyspace| keyspace.name == family.keyspace)?;
        keyspace.column_family(&family.name)
    }
}

impl Session {
    /// Whether the connection may call methods that touch data.
    fn check(&self, api: &Api) -> Result<(), Failure> {
        if self.logged_in.load(Ordering::Relaxed) || !api.authenticator.requires_login() {
            return Ok(());
        }
        Err(InvalidRequest::LoginRequired.into())
    }
}
