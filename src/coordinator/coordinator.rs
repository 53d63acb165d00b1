//! The coordinator of requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::consistency::ConsistencyLevel;
use super::error::CoordinatorError;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::{FamilyId, Schema};
use crate::model::slice::{RowSlice, Slice};
use crate::replica::{Answer, Replica, ReplicaError, Row, Ticket};
use crate::ring::{Partitioner, ReplicaPlacement, RowRange, Token, TokenMetadata};

/// Rows of one request that are read before other requests on the thread get their turn.
const ROWS_AT_A_TIME: usize = 32;

/// What a coordinator needs to know.
#[derive(Debug)]
pub struct CoordinatorOptions {
    /// The column families that requests may name.
    pub schema: Arc<Schema>,
    /// From row keys to tokens.
    pub partitioner: Partitioner,
    /// Where the replicas of each keyspace live. Keyspaces that are not here, such as `system`,
    /// are kept by each node for itself.
    pub placements: HashMap<String, ReplicaPlacement>,
    /// Who is where on the ring.
    pub ring: TokenMetadata,
    /// Address of this node.
    pub local: IpAddr,
    /// `RpcTimeoutInMillis`: how long replicas may take to answer.
    pub rpc_timeout: Duration,
    /// This node as a replica.
    pub replica: Arc<Replica>,
}

/// Serves requests by asking the replicas that hold the rows.
#[derive(Debug)]
pub struct Coordinator {
    partitioner: Partitioner,
    placements: HashMap<String, ReplicaPlacement>,
    /// By number of column family, so that the hot path looks no name up.
    placement_of_family: Vec<Option<ReplicaPlacement>>,
    /// Replaced as a whole when the ring changes.
    ring: RwLock<Arc<TokenMetadata>>,
    local: IpAddr,
    rpc_timeout: Duration,
    replica: Arc<Replica>,
}

/// The replicas of a key, as far as a request has to know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Replicas {
    /// How many endpoints hold the key.
    endpoints: usize,
    /// How many of them are alive.
    live: usize,
    /// How many there should be.
    replication_factor: usize,
}

impl Replicas {
    /// Data that every node keeps for itself.
    const LOCAL: Self = Self { endpoints: 1, live: 1, replication_factor: 1 };

    fn check_write(self, level: ConsistencyLevel) -> Result<(), CoordinatorError> {
        let enough = self.live >= level.block_for_write(self.endpoints);
        if enough { Ok(()) } else { Err(CoordinatorError::Unavailable) }
    }

    fn check_read(self, level: ConsistencyLevel) -> Result<(), CoordinatorError> {
        let enough = self.live >= level.block_for_read(self.replication_factor);
        if enough { Ok(()) } else { Err(CoordinatorError::Unavailable) }
    }
}

impl Coordinator {
    /// A coordinator.
    pub fn new(options: CoordinatorOptions) -> Self {
        let CoordinatorOptions { schema, placements, .. } = options;
        let placement_of_family = schema
            .families()
            .map(|(_, family)| placements.get(&family.keyspace).cloned())
            .collect();
        Self {
            partitioner: options.partitioner,
            placements,
            placement_of_family,
            ring: RwLock::new(Arc::new(options.ring)),
            local: options.local,
            rpc_timeout: options.rpc_timeout,
            replica: options.replica,
        }
    }

    /// From row keys to tokens.
    pub fn partitioner(&self) -> Partitioner {
        self.partitioner
    }

    /// The ring as it is now.
    pub fn ring(&self) -> Arc<TokenMetadata> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the ring, for requests that begin from now on.
    pub fn set_ring(&self, ring: TokenMetadata) {
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
    }

    /// Where the replicas of a keyspace live; `None` if every node keeps it for itself.
    pub fn placement(&self, keyspace: &str) -> Option<&ReplicaPlacement> {
        self.placements.get(keyspace)
    }

    /// Tokens of keys that are sampled from this node's indexes on disk, in any order.
    pub fn sampled_tokens(&self) -> Vec<Token> {
        self.replica.sampled_tokens()
    }

    /// Writes to rows. Nothing is sent unless enough replicas of all rows are alive. At
    /// [`ConsistencyLevel::Zero`] it only waits until the work is queued, and failures go to the
    /// log.
    pub async fn write(
        &self,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> Result<(), CoordinatorError> {
        let ring = self.ring();
        if level != ConsistencyLevel::Zero {
            for mutation in mutations {
                self.replicas_of_mutation(&ring, mutation).check_write(level)?;
            }
        }
        if level == ConsistencyLevel::Zero {
            return self.write_unwaited(mutations).await;
        }
        let work = async {
            self.replica.apply(mutations).await.wait().await?;
            Ok(())
        };
        self.in_time(Some(self.rpc_timeout), work).await
    }

    async fn write_unwaited(&self, mutations: &[RowMutation]) -> Result<(), CoordinatorError> {
        if let Answer::Ready(Err(error)) = self.replica.apply(mutations).await {
            let rows = mutations.len();
            log::warn!("a write at ZERO to {rows} rows failed: {error}");
        }
        Ok(())
    }

    /// What one request reads by.
    pub fn ticket(&self) -> Ticket {
        self.replica.ticket()
    }

    /// Reads a slice of a row. The ticket is held until the answer has been written.
    pub async fn read(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        level: ConsistencyLevel,
        ticket: &mut Ticket,
    ) -> Result<RowSlice, CoordinatorError> {
        self.replicas(&self.ring(), family, key).check_read(level)?;
        let work = async { self.replica.read(family, key, slice, ticket).await.wait().await };
        self.in_time(self.read_timeout(level), work).await
    }

    /// Reads the same slice of several rows, in the order of the keys. Nothing is read unless
    /// enough replicas of all rows are alive; what is not in memory is read in parallel.
    pub async fn read_many(
        &self,
        family: FamilyId,
        keys: &[RowKey],
        slice: &Slice,
        level: ConsistencyLevel,
        ticket: &mut Ticket,
    ) -> Result<Vec<RowSlice>, CoordinatorError> {
        let ring = self.ring();
        for key in keys {
            self.replicas(&ring, family, key).check_read(level)?;
        }
        let work = async {
            let mut answers = Vec::with_capacity(keys.len());
            for (number, key) in keys.iter().enumerate() {
                if number % ROWS_AT_A_TIME == ROWS_AT_A_TIME - 1 {
                    // Other connections of this thread want to be served as well.
                    tokio::task::yield_now().await;
                }
                answers.push(self.replica.read(family, key, slice, ticket).await);
            }
            let mut rows = Vec::with_capacity(keys.len());
            for answer in answers {
                rows.push(answer.wait().await?);
            }
            Ok(rows)
        };
        self.in_time(self.read_timeout(level), work).await
    }

    /// Does what would keep the thread of a connection for long on another one.
    pub async fn elsewhere<T: Send + 'static>(
        &self,
        ticket: &mut Ticket,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CoordinatorError> {
        Ok(self.replica.elsewhere(ticket, job).await?)
    }

    /// Counts the columns, or super columns, of a slice of a row.
    pub async fn count(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        level: ConsistencyLevel,
    ) -> Result<usize, CoordinatorError> {
        self.replicas(&self.ring(), family, key).check_read(level)?;
        let work = async { self.replica.count(family, key, slice).await.wait().await };
        self.in_time(self.read_timeout(level), work).await
    }

    /// Reads a slice of each of the first `max_rows` rows of these ranges, one range after the
    /// other. Each stretch between two nodes of the ring is asked of its own replicas.
    pub async fn scan(
        &self,
        family: FamilyId,
        ranges: &[RowRange],
        slice: &Slice,
        max_rows: usize,
        level: ConsistencyLevel,
        ticket: &mut Ticket,
    ) -> Result<Vec<Row>, CoordinatorError> {
        let ring = self.ring();
        let mut rows = Vec::new();
        // One node's pieces of a range make up the range, and one scan is cheaper than several.
        let cut = |range: &RowRange| match ring.len() {
            0 | 1 => vec![range.clone()],
            _ => ring.split(range),
        };
        for piece in ranges.iter().flat_map(cut) {
            let wanted = max_rows.saturating_sub(rows.len());
            if wanted == 0 {
                break;
            }
            self.replicas_of_token(&ring, family, || piece.right_token().clone())
                .check_read(level)?;
            let scan = self.replica.scan(family, &piece, slice, wanted, ticket);
            let work = async { scan.await.wait().await };
            rows.extend(self.in_time(Some(self.rpc_timeout), work).await?);
        }
        Ok(rows)
    }

    fn replicas_of_mutation(&self, ring: &TokenMetadata, mutation: &RowMutation) -> Replicas {
        match mutation.families.first() {
            Some(first) => self.replicas(ring, first.family, &mutation.key),
            // It does nothing, and every node can do that.
            None => Replicas::LOCAL,
        }
    }

    fn replicas(&self, ring: &TokenMetadata, family: FamilyId, key: &RowKey) -> Replicas {
        self.replicas_of_token(ring, family, || self.partitioner.token(key.as_bytes()))
    }

    fn replicas_of_token(
        &self,
        ring: &TokenMetadata,
        family: FamilyId,
        token: impl FnOnce() -> Token,
    ) -> Replicas {
        let placement = self.placement_of_family.get(family.0 as usize);
        let Some(Some(placement)) = placement else { return Replicas::LOCAL };
        let replication_factor = placement.replication_factor;
        // On a ring of one all tokens are alike, and a token may be costly to compute.
        if ring.len() <= 1 {
            let endpoints = ring.len().min(replication_factor);
            let live = ring.members().filter(|&(_, member)| self.is_alive(member)).count();
            return Replicas { endpoints, live: live.min(endpoints), replication_factor };
        }
        let endpoints = placement.natural_endpoints(ring, &token());
        let live = endpoints.iter().filter(|&&endpoint| self.is_alive(endpoint)).count();
        Replicas { endpoints: endpoints.len(), live, replication_factor }
    }

    /// Of other nodes nothing is known here, so only this one counts as alive.
    fn is_alive(&self, endpoint: IpAddr) -> bool {
        endpoint == self.local
    }

    /// How long a read may take. One at ONE on this node itself takes as long as it takes, as in
    /// 0.6: there is nobody else to ask.
    fn read_timeout(&self, level: ConsistencyLevel) -> Option<Duration> {
        (level != ConsistencyLevel::One).then_some(self.rpc_timeout)
    }

    async fn in_time<T>(
        &self,
        timeout: Option<Duration>,
        work: impl Future<Output = Result<T, ReplicaError>>,
    ) -> Result<T, CoordinatorError> {
        let done = match timeout {
            Some(timeout) => {
                tokio::time::timeout(timeout, work).await.map_err(|_| CoordinatorError::TimedOut)?
            }
            None => work.await,
        };
        done.map_err(CoordinatorError::from)
    }
}
