//! Orders of other nodes: to collect the ranges of which this node is about to become a replica, or
//! rows that it lacks.

use super::calls::{Collect, JobStatus};
use super::host::Host;
use super::progress::Progress;
use super::transfer::fetch::{FetchError, Fetcher};
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// An order after which nobody has asked for so long is given up: whoever gave it is gone.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// The orders that this node carries out, or has carried out.
#[derive(Debug)]
pub(super) struct Orders {
    clock: Arc<dyn Clock>,
    by_number: Mutex<rank::RepairProgress, BTreeMap<u64, Order>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Order {
    from: IpAddr,
    progress: Arc<Progress>,
    /// None while it is carried out.
    outcome: Option<Result<(), String>>,
    asked: Duration,
    stop: CancellationToken,
}

impl Orders {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let (by_number, stop, tasks) = Default::default();
        Arc::new(Self { clock, by_number, stop, tasks })
    }

    /// Collects ranges, unless the order is known already. Must be called within a tokio runtime.
    pub(super) fn take(
        self: &Arc<Self>,
        from: IpAddr,
        Collect { order, ranges }: Collect,
        fetcher: Arc<Fetcher>,
        host: Arc<dyn Host>,
    ) {
        let told = format!(
            "{from} has this node collect {} ranges, of which it becomes a replica",
            ranges.len()
        );
        let work =
            async move |progress: Arc<Progress>| fetcher.fetch(&ranges, &*host, &progress).await;
        self.carry_out(from, order, log::Level::Info, &told, work);
    }

    /// Collects rows that other replicas have, unless the order is known already. Must be called
    /// within a tokio runtime.
    pub(super) fn take_rows(
        self: &Arc<Self>,
        from: IpAddr,
        order: u64,
        (family, sources): (FamilyId, Vec<(IpAddr, Vec<RowKey>)>),
        fetcher: Arc<Fetcher>,
        host: Arc<dyn Host>,
    ) {
        let rows: usize = sources.iter().map(|(_, keys)| keys.len()).sum();
        let told = format!("{from} has this node collect {rows} rows that it lacks");
        let work = async move |progress: Arc<Progress>| {
            fetcher.fetch_rows(family, &sources, &*host, &progress).await
        };
        self.carry_out(from, order, log::Level::Debug, &told, work);
    }

    fn carry_out<W, F>(
        self: &Arc<Self>,
        from: IpAddr,
        order: u64,
        level: log::Level,
        told: &str,
        work: W,
    ) where
        W: FnOnce(Arc<Progress>) -> F,
        F: Future<Output = Result<(), FetchError>> + Send + 'static,
    {
        let now = self.clock.monotonic();
        let mut orders = self.lock();
        let Entry::Vacant(place) = orders.entry(order) else { return };
        let (progress, stop) = (Arc::<Progress>::default(), self.stop.child_token());
        place.insert(Order {
            from,
            progress: Arc::clone(&progress),
            outcome: None,
            asked: now,
            stop: stop.clone(),
        });
        drop(orders);
        log::log!(level, "{told}");
        let (this, work) = (Arc::clone(self), work(Arc::clone(&progress)));
        self.tasks.spawn(async move {
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                outcome = work => outcome,
            };
            match &outcome {
                Ok(()) => log::log!(level, "collected for {from}: {} bytes", progress.now().bytes),
                Err(error) => log::warn!("what {from} ordered cannot be collected: {error}"),
            }
            if let Some(order) = this.lock().get_mut(&order) {
                order.outcome = Some(outcome.map_err(|error| error.to_string()));
            }
        });
    }

    /// How far an order is.
    pub(super) fn how_far(&self, order: u64) -> JobStatus {
        let now = self.clock.monotonic();
        let mut orders = self.lock();
        let Some(order) = orders.get_mut(&order) else { return JobStatus::Unknown };
        order.asked = now;
        let done = order.progress.now();
        match &order.outcome {
            None => JobStatus::Running {
                bytes: done.bytes,
                rows: done.rows,
                ranges_done: done.ranges_done,
                ranges: done.ranges,
            },
            Some(Ok(())) => JobStatus::Done { bytes: done.bytes, rows: done.rows },
            Some(Err(why)) => JobStatus::Failed { why: why.clone() },
        }
    }

    /// Forgets an order, which ends if it is being carried out.
    pub(super) fn withdraw(&self, order: u64) {
        if let Some(order) = self.lock().remove(&order) {
            order.stop.cancel();
        }
    }

    /// Gives up what nobody asks after any more. To be called now and then.
    pub(super) fn tidy(&self) {
        let now = self.clock.monotonic();
        self.lock().retain(|_, order| {
            let is_wanted = now.saturating_sub(order.asked) < FORGOTTEN_AFTER;
            if !is_wanted {
                order.stop.cancel();
                if order.outcome.is_none() {
                    log::warn!("{} asks no more after what this node collects for it", order.from);
                }
            }
            is_wanted
        });
    }

    /// Ends all of them.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Order>> {
        self.by_number.lock()
    }
}
