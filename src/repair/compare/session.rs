//! The repair of column families by the node that was asked to do it.

use super::calls::{CollectRows, Findings, HashRows, Scope, Validate, parse_hash, text_ranges};
use super::differences::{Differing, Listed, Listing, compare_rows, differing};
use super::leaves::{Leaves, Shape};
use super::parties::{MOST_LOSSES, Parties};
use super::shape::{RepairScope, ranges_by_replicas, shape, still_fits};
use crate::base::lock::{Mutex, rank};
use crate::model::schema::FamilyId;
use crate::net::caller::Caller;
use crate::repair::error::OperationError;
use crate::repair::host::{Host, RingSnapshot};
use crate::repair::legacy::LegacyPeers;
use crate::repair::operation::OperationRun;
use crate::repair::service::Service;
use crate::repair::text_key::TextKey;
use crate::replica::Blocking;
use crate::ring::{ReplicaPlacement, TokenMetadata, TokenRange};
use crate::storage::Storage;
use crate::storage::error::ReadError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::JoinSet;

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
    local: IpAddr,
    storage: Arc<Storage>,
    blocking: Blocking,
    placements: BTreeMap<String, ReplicaPlacement>,
    caller: Caller,
    service: Arc<Service>,
    /// Repairs with nodes of 0.6.
    legacy: Arc<LegacyPeers>,
    rng: Mutex<rank::Random, fastrand::Rng>,
}

/// Ranges of a column family that the same replicas have.
struct Unit {
    family: FamilyId,
    gc_before: i32,
    replicas: BTreeSet<IpAddr>,
    ranges: Vec<TokenRange>,
}

/// Rows that are to be collected: by whom, from whom.
#[derive(Default)]
struct Orders {
    by_collector: BTreeMap<IpAddr, BTreeMap<IpAddr, Vec<TextKey>>>,
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
        let key = TextKey(key.clone());
        for (collector, source) in missing {
            let sources = self.by_collector.entry(*collector).or_default();
            sources.entry(*source).or_default().push(key.clone());
            let size = self.sizes.entry(*collector).or_default();
            size.rows += 1;
            size.key_bytes += key.text_bytes();
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
        (local, storage, blocking): (IpAddr, Arc<Storage>, Blocking),
        placements: BTreeMap<String, ReplicaPlacement>,
        caller: Caller,
        (service, legacy): (Arc<Service>, Arc<LegacyPeers>),
        seed: u64,
    ) -> Arc<Self> {
        let rng = Mutex::new(fastrand::Rng::with_seed(seed));
        Arc::new(Self { local, storage, blocking, placements, caller, service, legacy, rng })
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
            for replica in self.units(*family, scope, &look.members.ring)?.into_keys().flatten() {
                if replica == self.local {
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

    fn units(
        &self,
        family: FamilyId,
        scope: RepairScope,
        ring: &TokenMetadata,
    ) -> Result<BTreeMap<BTreeSet<IpAddr>, Vec<TokenRange>>, OperationError> {
        let keyspace = &self.storage.schema().family(family).keyspace;
        let Some(placement) = self.placements.get(keyspace) else {
            return Err(OperationError::NotReplicated(keyspace.clone()));
        };
        Ok(ranges_by_replicas(placement, ring, self.local, scope))
    }

    /// Repairs column families, one after the other. Returns what was done, in words.
    pub(in crate::repair) async fn repair(
        self: &Arc<Self>,
        families: &[FamilyId],
        scope: RepairScope,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<String, OperationError> {
        let look = host.look();
        self.check(families, scope, &look)?;
        let ring = look.members.ring.clone();
        let parties = Parties {
            local: self.local,
            caller: self.caller.clone(),
            service: Arc::clone(&self.service),
            host: Arc::clone(host),
            hashing: Arc::clone(&operation.hashing),
        };
        let is_same_ring = || host.look().members.ring == ring;
        let mut done: Vec<FamilyRepair> = Vec::new();
        for family in families {
            let name = self.storage.schema().family(*family).to_string();
            done.push(FamilyRepair { family: name.clone(), ..FamilyRepair::default() });
            let gc_before = self.storage.store(*family).gc_before();
            for (mut replicas, ranges) in self.units(*family, scope, &ring)? {
                replicas.retain(|replica| !look.is_legacy(*replica));
                if replicas.len() < 2 {
                    continue;
                }
                if !is_same_ring() {
                    return Err(OperationError::RingChanged);
                }
                operation.enter(&format!("Repairing {name} with {replicas:?}"));
                let unit = Unit { family: *family, gc_before, replicas, ranges };
                let Some(report) = done.last_mut() else { continue };
                let repaired = self.repair_unit(&unit, &parties, report).await;
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

    async fn repair_unit(
        self: &Arc<Self>,
        unit: &Unit,
        parties: &Parties,
        report: &mut FamilyRepair,
    ) -> Result<(), OperationError> {
        let shape = self.choose_shape(unit).await?;
        let leaves = self.leaves_of_all(unit, &shape, parties, report).await?;
        report.ranges += unit.ranges.len();
        let mut orders = Orders::default();
        for leaves in differing(&leaves).chunks(LEAVES_AT_A_TIME) {
            self.compare_leaves(unit, leaves, parties, &mut orders, report).await?;
        }
        self.give(unit, orders, parties, report).await
    }

    /// How the ranges are divided: if possible as before.
    async fn choose_shape(&self, unit: &Unit) -> Result<Shape, OperationError> {
        let (storage, family) = (Arc::clone(&self.storage), unit.family);
        let (partitioner, ranges) = (self.storage.partitioner(), unit.ranges.clone());
        let validations = Arc::clone(&self.service.validations);
        let look = move || {
            let set = storage.validation_set(family)?;
            let now = shape(partitioner, &ranges, set.rows(), &set.sampled_tokens());
            let before = validations.shape(family, &text_ranges(partitioner, &ranges));
            Ok(before.filter(|before| still_fits(before, &now)).unwrap_or(now))
        };
        let looked = self.blocking.run(look).await.map_err(|_| OperationError::Stopping)?;
        looked.map_err(|error: ReadError| OperationError::Repair {
            replica: self.local,
            why: error.to_string(),
        })
    }

    async fn leaves_of_all(
        self: &Arc<Self>,
        unit: &Unit,
        shape: &Shape,
        parties: &Parties,
        report: &mut FamilyRepair,
    ) -> Result<BTreeMap<IpAddr, Leaves>, OperationError> {
        let empty = Leaves::new(self.storage.partitioner(), &unit.ranges, shape);
        let empty = empty.map_err(|error| OperationError::Repair {
            replica: self.local,
            why: error.to_string(),
        })?;
        let session = self.number();
        let scope = self.scope(unit, &unit.ranges);
        let request = Arc::new(Validate { session, scope, shape: shape.clone() });
        let mut asked = JoinSet::new();
        for replica in unit.replicas.iter().copied() {
            let (parties, request) = (parties.clone(), Arc::clone(&request));
            let empty = empty.clone();
            asked.spawn(async move {
                let leaves = leaves_of(&parties, replica, &request, empty).await;
                parties.forget(replica, session).await;
                (replica, leaves)
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
        unit: &Unit,
        leaves: &[TokenRange],
        parties: &Parties,
        orders: &mut Orders,
        report: &mut FamilyRepair,
    ) -> Result<(), OperationError> {
        let mut listings: BTreeMap<IpAddr, Listing> =
            unit.replicas.iter().map(|replica| (*replica, Listing::default())).collect();
        let mut after: BTreeMap<IpAddr, TextKey> = BTreeMap::new();
        loop {
            let mut asked = JoinSet::new();
            for (replica, listing) in &listings {
                if !listing.rows.is_empty() || listing.is_complete {
                    continue;
                }
                let (replica, session) = (*replica, self.number());
                let (parties, scope) = (parties.clone(), self.scope(unit, leaves));
                let request = HashRows { session, scope, after: after.get(&replica).cloned() };
                asked.spawn(async move {
                    let found = parties.work_out(replica, session, &request).await;
                    parties.forget(replica, session).await;
                    (replica, found)
                });
            }
            while let Some(answered) = asked.join_next().await {
                let (replica, found) = answered.map_err(|_| OperationError::Stopping)?;
                let (listing, next) = self.listing(replica, found?, after.get(&replica))?;
                listings.insert(replica, listing);
                after.extend(next.map(|next| (replica, next)));
            }
            for row in compare_rows(&mut listings) {
                report.rows_differed += 1;
                report.bytes_differed += row.bytes;
                orders.add(&row);
                if orders.is_full() {
                    self.give(unit, std::mem::take(orders), parties, report).await?;
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
        findings: Findings,
        after: Option<&TextKey>,
    ) -> Result<(Listing, Option<TextKey>), OperationError> {
        let senseless = || OperationError::Repair {
            replica,
            why: "what it says of its rows makes no sense".to_owned(),
        };
        let Findings::Rows { rows, bytes, next } = findings else { return Err(senseless()) };
        let partitioner = self.storage.partitioner();
        let decorate = |TextKey(key): &TextKey| partitioner.decorate(key.clone());
        let bytes = bytes.into_iter().chain(iter::repeat(0));
        let row = |((key, hash), bytes): (&(TextKey, String), u64)| {
            Some(Listed { key: decorate(key), hash: parse_hash(hash)?, bytes })
        };
        let rows = rows.iter().zip(bytes).map(row).collect::<Option<VecDeque<_>>>();
        let rows = rows.ok_or_else(senseless)?;
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
        unit: &Unit,
        orders: Orders,
        parties: &Parties,
        report: &mut FamilyRepair,
    ) -> Result<(), OperationError> {
        let schema = self.storage.schema().family(unit.family);
        let mut asked = JoinSet::new();
        for (collector, sources) in orders.by_collector {
            let request = CollectRows {
                order: self.number(),
                keyspace: schema.keyspace.clone(),
                family: schema.name.clone(),
                sources: sources.into_iter().collect(),
            };
            let parties = parties.clone();
            asked.spawn(async move { (collector, parties.collect(collector, &request).await) });
        }
        let mut failed = None;
        while let Some(answered) = asked.join_next().await {
            let (collector, collected) = answered.map_err(|_| OperationError::Stopping)?;
            match collected {
                Ok((rows, bytes)) => {
                    let sum = report.collected.entry(collector).or_default();
                    *sum = (sum.0 + rows, sum.1 + bytes);
                }
                // What others collect is of use all the same.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn scope(&self, unit: &Unit, ranges: &[TokenRange]) -> Scope {
        let schema = self.storage.schema().family(unit.family);
        Scope {
            keyspace: schema.keyspace.clone(),
            family: schema.name.clone(),
            gc_before: unit.gc_before,
            ranges: text_ranges(self.storage.partitioner(), ranges),
        }
    }

    fn number(&self) -> u64 {
        self.rng.lock().u64(..)
    }
}

/// The hashes of a replica, and how many rows it has read for them.
async fn leaves_of(
    parties: &Parties,
    replica: IpAddr,
    request: &Validate,
    empty: Leaves,
) -> Result<(Leaves, u64), OperationError> {
    let session = request.session;
    let senseless = || OperationError::Repair {
        replica,
        why: "it has divided the ranges in another way".to_owned(),
    };
    let mut losses = 0;
    let (rows, hashes) = loop {
        let found = parties.work_out(replica, session, request).await?;
        let Findings::Leaves { rows, count, mut hashes } = found else { return Err(senseless()) };
        if count != empty.ranges().len() {
            return Err(senseless());
        }
        let mut is_lost = false;
        while hashes.len() < count && !is_lost {
            match parties.more_leaves(replica, session, hashes.len()).await? {
                Some(more) if more.is_empty() => return Err(senseless()),
                Some(more) => hashes.extend(more),
                None => is_lost = true,
            }
        }
        if !is_lost {
            break (rows, hashes);
        }
        // It was started since. What it has worked out it still knows, mostly.
        losses += 1;
        if losses >= MOST_LOSSES {
            return Err(Parties::loses(replica));
        }
    };
    let hashes = hashes.iter().map(|hash| parse_hash(hash)).collect::<Option<Vec<_>>>();
    let leaves = hashes.and_then(|hashes| empty.with_hashes(hashes)).ok_or_else(senseless)?;
    Ok((leaves, rows))
}
