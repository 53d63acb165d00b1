//! The repair of column families by the node that was asked to do it.

use super::differences::{Differing, Listed, Listing, compare_rows, differing};
use super::hashing::ListedRow;
use super::leaves::{Leaves, Shape};
use super::shape::{RepairScope, ranges_by_replicas, shape, still_fits};
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::repair::client::ReplicaClient;
use crate::repair::error::OperationError;
use crate::repair::host::{Host, RingSnapshot};
use crate::repair::job::{JobError, Output, RemoteJob, Scope, Task};
use crate::repair::legacy::LegacyPeers;
use crate::repair::operation::OperationRun;
use crate::repair::progress::{Progress, ProgressByNode};
use crate::replica::Blocking;
use crate::ring::{ReplicaPlacement, TokenMetadata, TokenRange};
use crate::storage::Storage;
use crate::storage::error::ReadError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Longest time that a replica may be down.
const DOWN_PATIENCE: Duration = Duration::from_secs(30);

/// Leaves whose rows are listed at a time.
const LEAVES_AT_A_TIME: usize = 512;

/// Rows that a replica is ordered to collect at a time, at most, bytes of their keys, which travel
/// in one message, and about how many bytes of rows: each order makes SSTables of its own, and is
/// carried out anew when the replica is started meanwhile.
const ORDER_ROWS: usize = 128 << 10;
const ORDER_KEY_BYTES: usize = 2 << 20;
const ORDER_BYTES: u64 = 64 << 20;

/// What a repair has done to a column family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FamilyRepair {
    /// Keyspace and name.
    pub family: String,
    /// Ranges that were compared, each among all its replicas.
    pub ranges: usize,
    /// Rows that replicas have read for that; none where they knew the hashes.
    pub rows_read: u64,
    /// Rows in which replicas differed.
    pub rows_differed: u64,
    /// Bytes of these, each once, as its largest version.
    pub bytes_differed: u64,
    /// What each replica has got from others: rows, each once for each version, and bytes.
    pub collected: BTreeMap<IpAddr, (u64, u64)>,
}

/// Repairs.
#[derive(Debug)]
pub(in crate::repair) struct AntiEntropy {
    storage: Arc<Storage>,
    blocking: Blocking,
    placements: BTreeMap<String, ReplicaPlacement>,
    client: Arc<ReplicaClient>,
    /// Repairs with nodes of 0.6.
    legacy: Arc<LegacyPeers>,
}

/// Has replicas do jobs for an operation.
#[derive(Debug, Clone)]
struct Replicas {
    client: Arc<ReplicaClient>,
    host: Arc<dyn Host>,
    hashing: Arc<ProgressByNode>,
}

impl Replicas {
    async fn run(&self, at: IpAddr, task: Task) -> Result<(Progress, Output), OperationError> {
        let (client, host) = (Arc::clone(&self.client), Arc::clone(&self.host));
        let job = RemoteJob { client, host, at, down_patience: DOWN_PATIENCE };
        let done = job.run(task, |progress| self.hashing.note(at, progress)).await;
        done.map_err(|error: JobError| failed(at, &error.to_string()))
    }
}

/// Ranges of a column family that the same replicas have.
struct SharedRanges {
    family: FamilyId,
    gc_before: i32,
    replicas: BTreeSet<IpAddr>,
    ranges: Vec<TokenRange>,
}

/// Rows that are to be collected: by whom, from whom.
#[derive(Default)]
struct Orders {
    by_collector: BTreeMap<IpAddr, BTreeMap<IpAddr, Vec<RowKey>>>,
    sizes: BTreeMap<IpAddr, OrderSize>,
}

/// What one collector is to collect.
#[derive(Default)]
struct OrderSize {
    rows: usize,
    key_bytes: usize,
    bytes: u64,
}

impl Orders {
    fn add(&mut self, Differing { key, missing, bytes }: &Differing) {
        for (collector, source) in missing {
            let sources = self.by_collector.entry(*collector).or_default();
            sources.entry(*source).or_default().push(key.clone());
            let size = self.sizes.entry(*collector).or_default();
            size.rows += 1;
            size.key_bytes += key.as_bytes().len();
            size.bytes = size.bytes.saturating_add(*bytes);
        }
    }

    fn is_full(&self) -> bool {
        let is_full = |it: &OrderSize| {
            it.rows >= ORDER_ROWS || it.key_bytes >= ORDER_KEY_BYTES || it.bytes >= ORDER_BYTES
        };
        self.sizes.values().any(is_full)
    }
}

impl AntiEntropy {
    pub(in crate::repair) fn new(
        client: Arc<ReplicaClient>,
        legacy: Arc<LegacyPeers>,
        placements: BTreeMap<String, ReplicaPlacement>,
    ) -> Self {
        let (storage, blocking) = (Arc::clone(&legacy.storage), legacy.blocking);
        Self { storage, blocking, placements, client, legacy }
    }

    /// Whether these families can be repaired, as far as this node knows.
    pub(in crate::repair) fn check(
        &self,
        families: &[FamilyId],
        scope: RepairScope,
        look: &RingSnapshot,
    ) -> Result<(), OperationError> {
        let mut down = BTreeSet::new();
        for family in families {
            for replica in self.ranges_of(*family, scope, &look.members.ring)?.into_keys().flatten()
            {
                if replica == self.client.local {
                    continue;
                }
                if !look.live.contains(&replica) {
                    down.insert(replica);
                }
            }
        }
        if down.is_empty() {
            Ok(())
        } else {
            Err(OperationError::ReplicasDown(down.into_iter().collect()))
        }
    }

    fn ranges_of(
        &self,
        family: FamilyId,
        scope: RepairScope,
        ring: &TokenMetadata,
    ) -> Result<BTreeMap<BTreeSet<IpAddr>, Vec<TokenRange>>, OperationError> {
        let keyspace = &self.storage.schema().family(family).keyspace;
        let Some(placement) = self.placements.get(keyspace) else {
            return Err(OperationError::NotReplicated(keyspace.clone()));
        };
        Ok(ranges_by_replicas(placement, ring, self.client.local, scope))
    }

    /// Repairs column families, one after the other. Returns what was done, in words.
    pub(in crate::repair) async fn repair(
        &self,
        families: &[FamilyId],
        scope: RepairScope,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<String, OperationError> {
        let look = host.look();
        self.check(families, scope, &look)?;
        let ring = look.members.ring.clone();
        let clients = Replicas {
            client: Arc::clone(&self.client),
            host: Arc::clone(host),
            hashing: Arc::clone(&operation.hashing),
        };
        let is_same_ring = || host.look().members.ring == ring;
        let mut done: Vec<FamilyRepair> = Vec::new();
        for family in families {
            let name = self.storage.schema().family(*family).to_string();
            done.push(FamilyRepair { family: name.clone(), ..FamilyRepair::default() });
            let gc_before = self.storage.store(*family).gc_before();
            for (mut replicas, ranges) in self.ranges_of(*family, scope, &ring)? {
                replicas.retain(|replica| !look.is_legacy(*replica));
                if replicas.len() < 2 {
                    continue;
                }
                if !is_same_ring() {
                    return Err(OperationError::RingChanged);
                }
                operation.enter(&format!("Repairing {name} with {replicas:?}"));
                let shared = SharedRanges { family: *family, gc_before, replicas, ranges };
                let Some(report) = done.last_mut() else { continue };
                let repaired = self.repair_ranges(&shared, &clients, report).await;
                operation.note_repaired(&done);
                operation.hashing.clear();
                repaired?;
            }
            if !look.live.iter().any(|it| look.is_legacy(*it)) {
                continue;
            }
            operation.enter(&format!("Repairing {name} with nodes of 0.6"));
            let Some(report) = done.last_mut() else { continue };
            let repaired = self.legacy.repair(*family, host, report).await;
            operation.note_repaired(&done);
            repaired?;
        }
        if !is_same_ring() {
            // Who has become a replica meanwhile was not asked.
            return Err(OperationError::RingChanged);
        }
        let sum = |of: fn(&FamilyRepair) -> u64| done.iter().map(of).sum::<u64>();
        let (ranges, differed) = (sum(|it| it.ranges as u64), sum(|it| it.rows_differed));
        let bytes = sum(|it| it.bytes_differed);
        if ranges == 0 {
            return Ok("no other node has any of it, there is nothing to compare".to_owned());
        }
        let families = done.len();
        let rows = format!("{differed} rows of {bytes} bytes");
        Ok(format!("{ranges} ranges of {families} column families, {rows} differed"))
    }

    async fn repair_ranges(
        &self,
        shared: &SharedRanges,
        replicas: &Replicas,
        report: &mut FamilyRepair,
    ) -> Result<(), OperationError> {
        let shape = self.choose_shape(shared).await?;
        let leaves = self.leaves_of_all(shared, &shape, replicas, report).await?;
        report.ranges += shared.ranges.len();
        let mut orders = Orders::default();
        for leaves in differing(&leaves).chunks(LEAVES_AT_A_TIME) {
            self.compare_leaves(shared, leaves, replicas, &mut orders, report).await?;
        }
        self.give(shared, orders, replicas, report).await
    }

    /// How the ranges are divided: if possible as before.
    async fn choose_shape(&self, shared: &SharedRanges) -> Result<Shape, OperationError> {
        let (storage, family) = (Arc::clone(&self.storage), shared.family);
        let (partitioner, ranges) = (self.storage.partitioner(), shared.ranges.clone());
        let validator = Arc::clone(&self.client.service.validator);
        let look = move || {
            let set = storage.validation_set(family)?;
            let now = shape(partitioner, &ranges, set.rows(), &set.sampled_tokens());
            let before = validator.shape(family, &ranges);
            Ok(before.filter(|before| still_fits(before, &now)).unwrap_or(now))
        };
        let looked = self.blocking.run(look).await.map_err(|_| OperationError::Stopping)?;
        looked.map_err(|error: ReadError| failed(self.client.local, &error.to_string()))
    }

    async fn leaves_of_all(
        &self,
        shared: &SharedRanges,
        shape: &Shape,
        replicas: &Replicas,
        report: &mut FamilyRepair,
    ) -> Result<BTreeMap<IpAddr, Leaves>, OperationError> {
        let empty = Leaves::new(self.storage.partitioner(), &shared.ranges, shape);
        let empty = empty.map_err(|error| failed(self.client.local, &error.to_string()))?;
        let mut asked = JoinSet::new();
        for replica in shared.replicas.iter().copied() {
            let (replicas, empty) = (replicas.clone(), empty.clone());
            let (scope, shape) = (shared.scope(&shared.ranges), shape.clone());
            asked.spawn(async move {
                let done = replicas.run(replica, Task::Leaves { scope, shape }).await;
                (replica, done.and_then(|done| leaves_of(replica, done, empty)))
            });
        }
        let mut leaves = BTreeMap::new();
        while let Some(answered) = asked.join_next().await {
            let (replica, answered) = answered.map_err(|_| OperationError::Stopping)?;
            let (found, rows) = answered?;
            report.rows_read += rows;
            leaves.insert(replica, found);
        }
        Ok(leaves)
    }

    /// Compares the rows of some leaves.
    async fn compare_leaves(
        &self,
        shared: &SharedRanges,
        leaves: &[TokenRange],
        replicas: &Replicas,
        orders: &mut Orders,
        report: &mut FamilyRepair,
    ) -> Result<(), OperationError> {
        let mut listings: BTreeMap<IpAddr, Listing> =
            shared.replicas.iter().map(|replica| (*replica, Listing::default())).collect();
        let mut after: BTreeMap<IpAddr, RowKey> = BTreeMap::new();
        loop {
            let mut asked = JoinSet::new();
            for (replica, listing) in &listings {
                if !listing.rows.is_empty() || listing.is_complete {
                    continue;
                }
                let (replica, replicas) = (*replica, replicas.clone());
                let (scope, after) = (shared.scope(leaves), after.get(&replica).cloned());
                asked.spawn(async move {
                    (replica, replicas.run(replica, Task::List { scope, after }).await)
                });
            }
            while let Some(answered) = asked.join_next().await {
                let (replica, found) = answered.map_err(|_| OperationError::Stopping)?;
                let (_, output) = found?;
                let (listing, next) = self.listing(replica, output, after.get(&replica))?;
                listings.insert(replica, listing);
                after.extend(next.map(|next| (replica, next)));
            }
            for row in compare_rows(&mut listings) {
                report.rows_differed += 1;
                report.bytes_differed += row.bytes;
                orders.add(&row);
                if orders.is_full() {
                    self.give(shared, std::mem::take(orders), replicas, report).await?;
                }
            }
            if listings.values().all(|it| it.rows.is_empty() && it.is_complete) {
                return Ok(());
            }
        }
    }

    /// What a replica has listed, and behind what it goes on.
    fn listing(
        &self,
        replica: IpAddr,
        output: Output,
        after: Option<&RowKey>,
    ) -> Result<(Listing, Option<RowKey>), OperationError> {
        let senseless = || failed(replica, "what it says of its rows makes no sense");
        let Output::Rows { rows, next } = output else { return Err(senseless()) };
        let decorate = |key: &RowKey| self.storage.partitioner().decorate(key.clone());
        let row = |ListedRow { key, hash, bytes }| Listed { key: decorate(&key), hash, bytes };
        let rows: VecDeque<Listed> = rows.into_iter().map(row).collect();
        let after = after.map(decorate);
        let ends = rows.iter().map(|row| &row.key);
        let is_in_order = after.iter().chain(ends).is_sorted_by(|a, b| a < b);
        // Or it would be asked for ever.
        let goes_on = next.as_ref().is_none_or(|next| {
            let next = decorate(next);
            after.as_ref().is_none_or(|after| *after < next)
        });
        if !is_in_order || !goes_on {
            return Err(senseless());
        }
        Ok((Listing { rows, is_complete: next.is_none() }, next))
    }

    /// Has replicas collect what they lack.
    async fn give(
        &self,
        shared: &SharedRanges,
        orders: Orders,
        replicas: &Replicas,
        report: &mut FamilyRepair,
    ) -> Result<(), OperationError> {
        let mut asked = JoinSet::new();
        for (collector, sources) in orders.by_collector {
            let sources = sources.into_iter().collect();
            let (replicas, task) =
                (replicas.clone(), Task::Rows { family: shared.family, sources });
            asked.spawn(async move { (collector, replicas.run(collector, task).await) });
        }
        let mut failure = None;
        while let Some(answered) = asked.join_next().await {
            let (collector, collected) = answered.map_err(|_| OperationError::Stopping)?;
            match collected {
                Ok((done, _)) => {
                    let sum = report.collected.entry(collector).or_default();
                    *sum = (sum.0 + done.rows, sum.1 + done.bytes);
                }
                // What others collect is of use all the same.
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

impl SharedRanges {
    fn scope(&self, ranges: &[TokenRange]) -> Scope {
        Scope { family: self.family, gc_before: self.gc_before, ranges: ranges.to_vec() }
    }
}

fn failed(replica: IpAddr, why: &str) -> OperationError {
    OperationError::Repair { replica, why: why.to_owned() }
}

/// The hashes of a replica, and how many rows it has read for them.
fn leaves_of(
    replica: IpAddr,
    (progress, output): (Progress, Output),
    empty: Leaves,
) -> Result<(Leaves, u64), OperationError> {
    let Output::Leaves { hashes, .. } = output else {
        return Err(failed(replica, "what it says of its leaves makes no sense"));
    };
    let leaves = empty.with_hashes(hashes);
    let leaves =
        leaves.ok_or_else(|| failed(replica, "it has divided the ranges in another way"))?;
    Ok((leaves, progress.rows))
}
