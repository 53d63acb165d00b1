//! Operations that every front end offers: their checks, the login, and answers that are written as
//! they are read. A front end decodes a request, calls these, and encodes what they return.
//!
//! ```text
//!   Service        sessions, the time and memory of a request, writes
//!     login        who may log in: authenticators
//!       login_turns    how often
//!     checks       keyspaces, column families, keys and names, in the words of 0.6
//!     rows         reads of many rows, a page at a time
//!     describe     keyspaces, ring, splits
//!     error        the one error
//! ```

mod checks;
mod describe;
mod error;
mod login;
mod login_turns;
mod rows;

pub use checks::{
    ColumnRange, Family, check_key, check_modifiable, check_name, check_super_name, not_super,
    row_key, unknown_keyspace,
};
pub use error::ServiceError;
pub use login::{Authenticator, SimpleAuthenticator};
pub use rows::{RowRanges, RowsByKey, RowsByRange, SMALL_ANSWER_BYTES, cost};

pub use crate::coordinator::{ConsistencyLevel, RowQuery};

use crate::base::clock::Clock;
use crate::base::context::RequestContext;
use crate::config::settings::KeyspaceSettings;
use crate::coordinator::Coordinator;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::Schema;
use crate::model::slice::RowSlice;
use login_turns::LoginTurns;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a service needs to know.
#[derive(Debug)]
pub struct ServiceOptions {
    /// `ClusterName`.
    pub cluster_name: String,
    /// All keyspaces and column families, `system` among them.
    pub schema: Arc<Schema>,
    /// The keyspaces as configured.
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

/// Operations of a node for its clients.
#[derive(Debug)]
pub struct Service {
    cluster_name: String,
    schema: Arc<Schema>,
    keyspaces: Vec<KeyspaceSettings>,
    config_text: String,
    authenticator: Authenticator,
    login_turns: LoginTurns,
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

impl Service {
    /// The service of a node.
    pub fn new(options: ServiceOptions) -> Self {
        let ServiceOptions { cluster_name, schema, keyspaces, config_text, .. } = options;
        let ServiceOptions { authenticator, clock, coordinator, .. } = options;
        Self {
            cluster_name,
            schema,
            keyspaces,
            config_text,
            authenticator,
            login_turns: LoginTurns::default(),
            clock,
            coordinator,
        }
    }

    /// Fails unless the connection may call operations that touch data.
    pub fn check_login(&self, session: &Session) -> Result<(), ServiceError> {
        if session.logged_in.load(Ordering::Relaxed) || !self.authenticator.requires_login() {
            return Ok(());
        }
        Err(ServiceError::invalid("Login is required before any other API calls"))
    }

    /// The context of a request. It holds the memory of the answer, so it has to be kept until that
    /// is written.
    pub fn request(&self) -> RequestContext {
        self.coordinator.request()
    }

    /// Gives a read the time that a request may take, and drops it then.
    pub async fn in_time<T>(
        &self,
        read: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, ServiceError> {
        self.coordinator.in_time(read).await
    }

    /// Runs a job that would keep the thread of a connection for long on another one.
    pub async fn offload<T: Send + 'static>(
        &self,
        context: &mut RequestContext,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        Ok(self.coordinator.spawn_read(context, job).await?)
    }

    /// Reads a slice of a row.
    pub async fn read(
        &self,
        query: RowQuery<'_>,
        level: ConsistencyLevel,
        context: &mut RequestContext,
    ) -> Result<RowSlice, ServiceError> {
        Ok(self.coordinator.read(query, level, context).await?)
    }

    /// Counts the columns, or super columns, of a row or a super column.
    pub async fn count(
        &self,
        family: Family<'_>,
        (key, super_name): (&RowKey, Option<&[u8]>),
        level: ConsistencyLevel,
        context: &RequestContext,
    ) -> Result<usize, ServiceError> {
        Ok(self.coordinator.count(family.id, key, super_name, level, context).await?)
    }

    /// Applies mutations, each of which is atomic.
    pub async fn write(
        &self,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> Result<(), ServiceError> {
        Ok(self.coordinator.write(mutations, level).await?)
    }

    /// Seconds since the Unix epoch, by which deletions are dated.
    pub fn now_secs(&self) -> i32 {
        self.clock.now_secs()
    }
}
