//! The repair of column families by the repairing node.

use super::differences::{Differing, Listing, compare_rows, differing};
use super::leaves::{Leaves, Shape};
use super::shape::{RepairScope, ranges_by_replicas, shape, still_fits};
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::repair::error::{OperationError, Result, fail};
use crate::repair::host::RingSnapshot;
use crate::repair::job::{Output, Scope, Task};
use crate::repair::operation::OperationRun;
use crate::repair::operations::Operations;
use crate::repair::progress::{Progress, ProgressByNode};
use crate::repair::service::Service;
use crate::ring::{TokenMetadata, TokenRange};
use crate::storage::compaction::GcSpan;
use futures_util::future::{join_all, try_join_all};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest time that a replica may be down.
const DOWN_PATIENCE: Duration = Duration::from_secs(30);

/// Leaves whose rows are listed at a time.
const LEAVES_AT_A_TIME: usize = 512;

/// Most rows that a replica collects by one order, most bytes of their keys, which are one message,
/// and approximate bytes of rows. Each order makes SSTables of its own, and is repeated when the
/// replica restarts meanwhile.
const ORDER_ROWS: usize = 128 << 10;
const ORDER_KEY_BYTES: usize = 2 << 20;
const ORDER_BYTES: u64 = 64 << 20;

/// Results of the repair of a column family.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyRepair {
    /// Keyspace and name.
    #[serde(rename = "column_family")]
    pub family: String,
    /// Ranges that were compared, each among all its replicas.
    pub ranges: usize,
    /// Rows that replicas have read for that; none if they knew the hashes.
    pub rows_read: u64,
    /// Rows in which replicas differed.
    pub rows_differed: u64,
    /// Bytes of these, each once, as its largest version.
    #[serde(default)]
    pub bytes_differed: u64,
    /// Data that replicas have got from others, by address.
    pub received: Vec<Received>,
}

/// Data that a replica has got from others in a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Address of the replica.
    pub address: IpAddr,
    /// Rows, each as often as others had different versions of it.
    pub rows: u64,
    /// Bytes that have come over the network.
    pub bytes: u64,
}

impl FamilyRepair {
    pub(in crate::repair) fn note_received(&mut self, address: IpAddr, rows: u64, bytes: u64) {
        match self.received.binary_search_by_key(&address, |it| it.address) {
            Ok(at) => {
                self.received[at].rows += rows;
                self.received[at].bytes += bytes;
            }
            Err(at) => self.received.insert(at, Received { address, rows, bytes }),
        }
    }
}

/// The comparison of ranges of a column family that have the same replicas.
struct Comparison<'a> {
    service: &'a Arc<Service>,
    hashing: &'a ProgressByNode,
    family: FamilyId,
    gc_before: i32,
    replicas: BTreeSet<IpAddr>,
    ranges: Vec<TokenRange>,
    report: &'a mut FamilyRepair,
    orders: BTreeMap<IpAddr, Order>,
}

/// Rows that a replica is to collect, by the node that has them.
#[derive(Default)]
struct Order {
    sources: BTreeMap<IpAddr, Vec<RowKey>>,
    rows: usize,
    key_bytes: usize,
    bytes: u64,
}

impl Operations {
    /// Checks whether these families can be repaired, as far as this node knows.
    pub(in crate::repair) fn check_repair(
        &self,
        families: &[FamilyId],
        scope: RepairScope,
        look: &RingSnapshot,
    ) -> Result<()> {
        let mut down = BTreeSet::new();
        for family in families {
            let replicas = self.repaired_ranges(*family, scope, &look.members.ring)?.into_keys();
            let is_down = |it: &IpAddr| *it != self.node.local() && !look.live.contains(it);
            down.extend(replicas.flatten().filter(is_down));
        }
        if down.is_empty() {
            return Ok(());
        }
        let down: Vec<IpAddr> = down.into_iter().collect();
        fail(format!("{down:?} are down, which have some of it: bring them up first"))
    }

    fn repaired_ranges(
        &self,
        family: FamilyId,
        scope: RepairScope,
        ring: &TokenMetadata,
    ) -> Result<BTreeMap<BTreeSet<IpAddr>, Vec<TokenRange>>> {
        let keyspace = &self.node.storage.schema().family(family).keyspace;
        let Some(placement) = self.node.placements.get(keyspace) else {
            return fail(format!("keyspace {keyspace} is not replicated"));
        };
        Ok(ranges_by_replicas(placement, ring, self.node.local(), scope))
    }

    /// Repairs column families, one after the other. Returns a description for operators.
    pub(in crate::repair) async fn repair(
        &self,
        families: &[FamilyId],
        scope: RepairScope,
        operation: &OperationRun,
    ) -> Result<String> {
        let look = self.node.look()?;
        self.check_repair(families, scope, &look)?;
        let mut done: Vec<FamilyRepair> = Vec::new();
        for family in families {
            let name = self.node.storage.schema().family(*family).to_string();
            let mut report = FamilyRepair { family: name, ..FamilyRepair::default() };
            let repaired = self.repair_family(*family, scope, &look, operation, &mut report).await;
            done.push(report);
            operation.note_repaired(&done);
            repaired?;
        }
        // Nodes that became replicas meanwhile did not take part.
        self.check_same_ring(&look)?;
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

    async fn repair_family(
        &self,
        family: FamilyId,
        scope: RepairScope,
        look: &RingSnapshot,
        operation: &OperationRun,
        report: &mut FamilyRepair,
    ) -> Result<()> {
        let gc_before = self.node.storage.family(family).gc_before();
        for (mut replicas, ranges) in self.repaired_ranges(family, scope, &look.members.ring)? {
            replicas.retain(|replica| !look.is_legacy(*replica));
            if replicas.len() < 2 {
                continue;
            }
            self.check_same_ring(look)?;
            operation.enter(&format!("Repairing {} with {replicas:?}", report.family));
            let mut comparison = Comparison {
                service: &self.service,
                hashing: &operation.hashing,
                family,
                gc_before,
                replicas,
                ranges,
                report,
                orders: BTreeMap::new(),
            };
            let repaired = comparison.run().await;
            operation.hashing.clear();
            repaired?;
        }
        if look.live.iter().any(|it| look.is_legacy(*it)) {
            operation.enter(&format!("Repairing {} with nodes of 0.6", report.family));
            self.legacy.repair(family, report).await?;
        }
        Ok(())
    }

    fn check_same_ring(&self, before: &RingSnapshot) -> Result<()> {
        let is_same = self.node.look()?.members.ring == before.members.ring;
        is_same.then_some(()).ok_or(OperationError::RingChanged)
    }
}

impl Comparison<'_> {
    async fn run(&mut self) -> Result<()> {
        let shape = self.choose_shape().await?;
        let leaves = self.leaves_of_all(&shape).await?;
        self.report.ranges += self.ranges.len();
        for leaves in differing(&leaves).chunks(LEAVES_AT_A_TIME) {
            self.compare_leaves(leaves).await?;
        }
        self.give().await
    }

    async fn run_job(&self, at: IpAddr, task: Task) -> Result<(Progress, Output)> {
        let done = self.service.run_job(at, DOWN_PATIENCE, task, self.hashing).await;
        done.map_err(|error| OperationError::repair(at, error))
    }

    fn scope(&self, ranges: &[TokenRange]) -> Scope {
        Scope { family: self.family, gc_before: self.gc_before, ranges: ranges.to_vec() }
    }

    /// Chooses the division of the ranges: the last one, if possible.
    async fn choose_shape(&self) -> Result<Shape> {
        let (service, family) = (Arc::clone(self.service), self.family);
        let ranges = self.ranges.clone();
        let look = move || {
            let node = &service.node;
            let set = node.storage.validation_set(family)?;
            let now = shape(node.partitioner(), &ranges, set.rows(), &set.sampled_tokens());
            let before = service.validator.shape(family, &ranges);
            Ok::<_, OperationError>(before.filter(|it| still_fits(it, &now)).unwrap_or(now))
        };
        let node = &self.service.node;
        node.run(look).await.map_err(|error| OperationError::repair(node.local(), error))
    }

    async fn leaves_of_all(&mut self, shape: &Shape) -> Result<BTreeMap<IpAddr, Leaves>> {
        let node = &self.service.node;
        let empty = Leaves::new(node.partitioner(), &self.ranges, shape);
        let empty = empty.map_err(|error| OperationError::repair(node.local(), error))?;
        let this = &*self;
        let all = try_join_all(self.replicas.iter().map(async |replica| {
            let task = Task::Leaves { scope: this.scope(&this.ranges), shape: shape.clone() };
            let (progress, output) = this.run_job(*replica, task).await?;
            Ok::<_, OperationError>((*replica, progress.rows, output))
        }));
        let mut leaves = BTreeMap::new();
        for (replica, rows, output) in all.await? {
            let Output::Leaves(hashes) = output else {
                let why = "what it says of its leaves makes no sense";
                return Err(OperationError::repair(replica, why));
            };
            let hashes = hashes.into_iter().map(|hash| (hash, GcSpan::default()));
            let divided = empty.clone().with_hashes(hashes);
            let why = "it has divided the ranges in another way";
            leaves.insert(replica, divided.ok_or_else(|| OperationError::repair(replica, why))?);
            self.report.rows_read += rows;
        }
        Ok(leaves)
    }

    /// Compares the rows of some leaves.
    async fn compare_leaves(&mut self, leaves: &[TokenRange]) -> Result<()> {
        let mut listings: BTreeMap<IpAddr, Listing> =
            self.replicas.iter().map(|replica| (*replica, Listing::default())).collect();
        loop {
            let this = &*self;
            let listed = try_join_all(listings.iter().map(async |(replica, listing)| {
                if !listing.is_wanted() {
                    return Ok(None);
                }
                let (scope, after) = (this.scope(leaves), listing.next.clone());
                let (_, output) = this.run_job(*replica, Task::List { scope, after }).await?;
                Ok::<_, OperationError>(Some((*replica, output)))
            }));
            for (replica, output) in listed.await?.into_iter().flatten() {
                let senseless = "what it says of its rows makes no sense";
                let Some(listing) = listings.get_mut(&replica) else { continue };
                if !listing.extend(output, self.service.node.partitioner()) {
                    return Err(OperationError::repair(replica, senseless));
                }
            }
            for row in compare_rows(&mut listings) {
                self.report.rows_differed += 1;
                self.report.bytes_differed += row.bytes;
                if self.order(&row) {
                    self.give().await?;
                }
            }
            if listings.values().all(|it| it.rows.is_empty() && it.is_complete) {
                return Ok(());
            }
        }
    }

    /// Adds a row to the orders of replicas. Returns whether an order is full.
    fn order(&mut self, Differing { key, missing, bytes }: &Differing) -> bool {
        let mut is_full = false;
        for (collector, source) in missing {
            let order = self.orders.entry(*collector).or_default();
            order.sources.entry(*source).or_default().push(key.clone());
            order.rows += 1;
            order.key_bytes += key.as_bytes().len();
            order.bytes = order.bytes.saturating_add(*bytes);
            is_full |= order.rows >= ORDER_ROWS
                || order.key_bytes >= ORDER_KEY_BYTES
                || order.bytes >= ORDER_BYTES;
        }
        is_full
    }

    /// Has replicas collect the rows that they lack.
    async fn give(&mut self) -> Result<()> {
        let (orders, this) = (std::mem::take(&mut self.orders), &*self);
        // If one fails, the others still collect.
        let all = join_all(orders.into_iter().map(async |(collector, order)| {
            let sources = order.sources.into_iter().collect();
            let task = Task::Rows { family: this.family, sources };
            (collector, this.run_job(collector, task).await)
        }));
        let mut outcome = Ok(());
        for (collector, collected) in all.await {
            match collected {
                Ok((done, _)) => {
                    self.report.note_received(collector, done.rows, done.bytes);
                }
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}
