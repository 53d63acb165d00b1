//! Operations of every front end: their checks, the login, and answers that are written while they
//! are read. A front end decodes a request, calls these, and encodes the result.
//!
//! Before an operation on data it calls [`Service::check_access`], and before a write
//! [`check_modifiable`]. A read runs within [`Service::in_time`], and its [`Service::request`] is
//! held until the answer is written.
//!
//! ```text
//!   Service        sessions, the time and memory of a request, writes
//!     login        authentication of clients, one login of an address at a time
//!     checks       keyspaces, column families, keys and names, in the words of 0.6
//!     rows         reads of many rows, a page at a time
//!     describe     keyspaces, ring, splits
//!     error        the error of all operations
//!   slow           requests that took long
//!   requests       counts and latencies, by call and consistency level
//! ```

mod checks;
mod describe;
mod error;
mod login;
mod requests;
mod rows;
mod slow;

pub use checks::{
    ColumnRange, Family, check_key, check_modifiable, check_name, check_super_name, has_text_keys,
    not_super, row_key, unknown_keyspace,
};
pub use describe::NodeView;
pub use error::ServiceError;
pub use login::{Access, Authenticator, Grants, LoginTurns, SimpleAuthenticator, hash_password};
pub use requests::{CallRequests, Failure, ProtocolNames, ProtocolRequests, Request, Requests};
pub use rows::{RowRanges, RowsByKey, RowsByRange, SMALL_ANSWER_BYTES, cost};
pub use slow::{SlowRequest, SlowRequests};

pub use crate::coordinator::{
    BatchError, CasOutcome, ConsistencyLevel, ReplicaCounts, RowQuery, Scan, SerialConsistency,
};
pub use crate::ring::{Partitioner, RowRange, Token};

use crate::base::audit;
use crate::base::clock::Clock;
use crate::base::context::RequestContext;
use crate::base::latest::Latest;
use crate::base::limited_log::LimitedLog;
use crate::base::lock::{Mutex, rank};
use crate::config::Settings;
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::coordinator::{Coordinator, CoordinatorError, RegisterError};
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::Schema;
use crate::model::slice::RowSlice;
use crate::schema::{ChangeError, Definitions, REGISTER_NAME, SchemaRegister};
use futures_util::TryFutureExt;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Shortest time between two lines about logins of a user from one address. Some clients log in for
/// each call.
const LOGINS_INTERVAL: Duration = Duration::from_secs(60);

/// Shortest time between two lines about refusals of a user from one address.
const REFUSALS_INTERVAL: Duration = Duration::from_secs(1);

/// The words of 0.6 for a call without a login.
const LOGIN_REQUIRED: &str = "Login is required before any other API calls";

/// Settings and parts of a service.
#[derive(Debug)]
pub struct ServiceOptions {
    /// Settings of the node.
    pub settings: Arc<Latest<Settings>>,
    /// All keyspaces and column families, `system` among them.
    pub schema: Arc<Schema>,
    /// Keyspaces, tables and types that were made over CQL.
    pub register: Arc<SchemaRegister>,
    /// Authentication method.
    pub authenticator: Latest<Authenticator>,
    /// Dates deletions.
    pub clock: Arc<dyn Clock>,
    /// Does the work.
    pub coordinator: Arc<Coordinator>,
    /// Counts what clients ask for.
    pub requests: Arc<Requests>,
}

/// Operations of a node for its clients.
#[derive(Debug)]
pub struct Service {
    options: ServiceOptions,
    login_turns: LoginTurns,
    /// Lines about logins, by client and user.
    logins: LimitedLog<(IpAddr, String)>,
    /// Lines about refusals; the user is empty before a login.
    refusals: LimitedLog<(IpAddr, String)>,
    /// Grows when the rights of users may have changed.
    rights_version: AtomicU64,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    client: IpAddr,
    logged_in: AtomicBool,
    /// Rights of the user of the last login, and the version of the rights that they are from.
    grants: Mutex<rank::State, Option<(Grants, u64)>>,
}

impl Session {
    /// Address of the client.
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// The user of the last login; `None` if nobody has to log in.
    pub fn user(&self) -> Option<String> {
        self.grants.lock().as_ref().map(|(grants, _)| grants.user.clone())
    }
}

impl From<SocketAddr> for Session {
    fn from(client: SocketAddr) -> Self {
        Self { client: client.ip(), logged_in: AtomicBool::new(false), grants: Mutex::default() }
    }
}

impl Service {
    /// The service of a node.
    pub fn new(options: ServiceOptions) -> Self {
        let (login_turns, rights_version) = Default::default();
        let [logins, refusals] = [LOGINS_INTERVAL, REFUSALS_INTERVAL]
            .map(|interval| LimitedLog::new(audit::TARGET, Arc::clone(&options.clock), interval));
        Self { options, login_turns, logins, refusals, rights_version }
    }

    /// Fails unless the connection may call operations that touch data.
    pub fn check_login(&self, session: &Session) -> Result<(), ServiceError> {
        if session.logged_in.load(Ordering::Relaxed) || !self.options.authenticator.requires_login()
        {
            return Ok(());
        }
        let client = session.client;
        self.refusals.warn((client, String::new()), format_args!("{client} is refused: no login"));
        Err(ServiceError::Refused(LOGIN_REQUIRED.into()))
    }

    /// Requests that took long.
    pub fn slow_requests(&self) -> &SlowRequests {
        self.options.requests.slow()
    }

    /// The requests of a protocol, to count them.
    pub fn requests(&self, names: ProtocolNames) -> Arc<ProtocolRequests> {
        self.options.requests.of(names)
    }

    /// Fails unless the connection may use the data of a keyspace so.
    pub fn check_access(
        &self,
        session: &Session,
        keyspace: &str,
        access: Access,
    ) -> Result<(), ServiceError> {
        self.check_login(session)?;
        match &*self.options.authenticator {
            Authenticator::Simple(simple) if simple.checks_calls => {
                let refused = |why: String| ServiceError::Refused(why.into());
                self.check_grants(session, keyspace, access).map_err(refused)
            }
            _ => Ok(()),
        }
    }

    /// Fails unless the connection may read all keyspaces.
    pub fn check_reads_all(&self, session: &Session) -> Result<(), ServiceError> {
        self.check_login(session)?;
        let keyspaces = self.options.schema.keyspaces().into_iter();
        keyspaces
            .filter(|keyspace| keyspace != SYSTEM_KEYSPACE)
            .try_for_each(|keyspace| self.check_access(session, &keyspace, Access::Read))
    }

    /// The context of a request. It holds the memory of the answer, so it has to be kept until that
    /// is written.
    pub fn request(&self) -> RequestContext {
        self.options.coordinator.request()
    }

    /// Gives a read the time that a request may take, and drops it then.
    pub fn in_time<T>(
        &self,
        read: impl Future<Output = Result<T, ServiceError>>,
    ) -> impl Future<Output = Result<T, ServiceError>> {
        self.options.coordinator.in_time(read)
    }

    /// Runs a job that would keep the thread of a connection for long on another one.
    pub fn offload<T: Send + 'static>(
        &self,
        context: &mut RequestContext,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ServiceError>> {
        self.options.coordinator.spawn_read(context, job).err_into()
    }

    /// Reads a slice of a row.
    pub fn read(
        &self,
        query: RowQuery<'_>,
        level: ConsistencyLevel,
        context: &mut RequestContext,
    ) -> impl Future<Output = Result<RowSlice, ServiceError>> {
        self.options.coordinator.read(query, level, context).err_into()
    }

    /// Changes the schema on all nodes of the ring, in one order. Returns whether there was
    /// something to do. The change may be called again with later definitions.
    pub async fn change_schema<E: Display + Send>(
        &self,
        change: impl Fn(&Definitions) -> Result<Option<Definitions>, E> + Send + Sync,
    ) -> Result<bool, ChangeError<E>> {
        let ServiceOptions { coordinator, register, .. } = &self.options;
        let mut request = self.request();
        let propose = |value: &[u8]| register.propose(value, &change);
        let changed = coordinator.change_register(REGISTER_NAME, propose, &mut request).await;
        let (is_changed, kept) = changed.map_err(|error| match error {
            RegisterError::Change(error) => error,
            error => ChangeError::Disagreement(error.to_string()),
        })?;
        if is_changed && !register.is_followed(&kept.value) {
            return Err(ChangeError::Disagreement(
                "the schema has changed, but this node cannot follow before the next change or \
                 start: see its log"
                    .to_owned(),
            ));
        }
        Ok(is_changed)
    }

    /// Reads a slice of a row with all conditional writes that were done before.
    pub fn read_serial(
        &self,
        query: RowQuery<'_>,
        level: SerialConsistency,
        context: &mut RequestContext,
    ) -> impl Future<Output = Result<RowSlice, ServiceError>> {
        self.options.coordinator.read_serial(query, level, context).err_into()
    }

    /// Writes to a row if a condition holds: see [`Coordinator::compare_and_set`]. The inner result
    /// is that of `decide`, if it failed.
    pub async fn compare_and_set<E: Send>(
        &self,
        row: RowQuery<'_>,
        levels: (SerialConsistency, ConsistencyLevel),
        mut decide: impl FnMut(&RowSlice, i64) -> Result<Option<RowMutation>, E> + Send,
        context: &mut RequestContext,
    ) -> Result<Result<CasOutcome, E>, ServiceError> {
        let mut failure = None;
        let decide = |row: &RowSlice, micros| {
            decide(row, micros).map_err(|error| {
                failure = Some(error);
                CoordinatorError::Unavailable(ReplicaCounts::NONE)
            })
        };
        let done = self.options.coordinator.compare_and_set(row, levels, decide, context).await;
        match (done, failure) {
            // Once a write was proposed the outcome is unknown instead, whatever failed later.
            (Err(CoordinatorError::Unavailable(_)), Some(error)) => Ok(Err(error)),
            (done, _) => Ok(Ok(done?)),
        }
    }

    /// Counts the columns, or super columns, of a row or a super column.
    pub async fn count(
        &self,
        family: Family<'_>,
        (key, super_name): (&RowKey, Option<&[u8]>),
        level: ConsistencyLevel,
        context: &RequestContext,
    ) -> Result<usize, ServiceError> {
        Ok(self.options.coordinator.count(family.id, key, super_name, level, context).await?)
    }

    /// Applies mutations, each of which is atomic.
    pub fn write(
        &self,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> impl Future<Output = Result<(), ServiceError>> {
        self.options.coordinator.write(mutations, level).err_into()
    }

    /// Applies mutations so that all of them are applied in the end if one is.
    pub fn write_batch(
        &self,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> impl Future<Output = Result<(), BatchError>> {
        self.options.coordinator.write_batch(mutations, level)
    }

    /// Microseconds since the Unix epoch.
    pub fn now_micros(&self) -> i64 {
        self.options.clock.now_micros()
    }

    /// Seconds since the Unix epoch, by which deletions are dated.
    pub fn now_secs(&self) -> i32 {
        self.options.clock.now_secs()
    }
}
