//! The node as the admin side knows it.

use super::error::AdminError;
use super::families::Recent;
use super::report::{
    Cache, Collected, Compaction, Compactions, Info, Memory, OperationState, PendingCompactions,
    Pool, StreamReport, Streams,
};
use super::ring_report::HintState;
use crate::base::clock::Clock;
use crate::base::latest::Latest;
use crate::base::machine;
use crate::base::tls::Tls;
use crate::config::Settings;
use crate::config::rack_file::RackFileSource;
use crate::net::tcp::TcpTransport;
use crate::node::{Drain, Member, Reload};
use crate::repair::{Operation, OperationReport, Stream, StreamsNow};
use crate::replica::{PoolLoad, Replica};
use crate::ring::Token;
use crate::server::Traffic;
use crate::service::{Requests, Service};
use crate::storage::Database;
use crate::storage::database::{Trouble, TroubleKind};
use crate::storage::family::FamilyStatistics;
use axum::http::StatusCode;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The node as the admin side knows it.
#[derive(Debug)]
pub struct AdminContext {
    /// Settings of the node.
    pub settings: Arc<Latest<Settings>>,
    /// Changes of them.
    pub reload: Arc<Reload>,
    /// Its data.
    pub storage: Arc<Database>,
    /// Its part of requests.
    pub replica: Arc<Replica>,
    /// The node among others.
    pub member: Arc<Member>,
    /// The way to the others.
    pub transport: Arc<TcpTransport>,
    /// File of racks, if a snitch has one.
    pub rack_file: Option<Arc<RackFileSource>>,
    /// The way out of its ring.
    pub drain: Arc<Drain>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Start of the node on the monotonic clock.
    pub started: Duration,
    /// Earlier looks at the counters.
    pub recent: Recent,
    /// Reads rows as clients do.
    pub service: Arc<Service>,
    /// Requests of clients.
    pub requests: Arc<Requests>,
    /// Connections of clients.
    pub traffic: Arc<Traffic>,
    /// Certificates.
    pub tls: Arc<Latest<Tls>>,
}

/// Whether a node can serve.
#[derive(Debug, Serialize)]
pub(super) struct Health {
    /// Whether it takes writes of all column families.
    pub(super) takes_writes: bool,
    /// Why it does not serve as it should; empty if all is well.
    pub(super) troubles: Vec<Trouble>,
}

impl AdminContext {
    /// The token of the node, as its partitioner writes it; empty if it has none.
    fn own_token(&self) -> String {
        let local = self.member.local();
        let token = self
            .member
            .with_gossip(|_, membership| membership.members().ring.token(local).cloned());
        let text = token.map(|token| self.storage.partitioner().display_token(&token));
        text.unwrap_or_default()
    }

    /// Start of the node, in milliseconds since the Unix epoch.
    pub(super) fn started_millis(&self) -> u64 {
        let uptime = self.clock.monotonic().saturating_sub(self.started);
        self.clock.coarse_millis().saturating_sub(uptime.as_millis() as u64)
    }

    /// The node and its memory.
    pub(super) fn info(&self) -> Info {
        let memory = self.storage.memory_use();
        Info {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster_name: self.settings.cluster_name.clone(),
            partitioner: self.storage.partitioner().class_name().to_owned(),
            token: self.own_token(),
            // Others may have made a greater one necessary since the start.
            generation: self.member.with_gossip(|gossiper, _| gossiper.generation()),
            uptime_seconds: self.clock.monotonic().saturating_sub(self.started).as_secs(),
            load_bytes: self.load_bytes(),
            memory: Memory {
                resident_bytes: machine::resident_bytes(),
                limit_bytes: machine::memory_bytes(),
                memtables_bytes: memory.memtables,
                memtables_budget_bytes: memory.memtable_budget,
                key_caches_bytes: memory.key_caches.0,
                key_caches_budget_bytes: memory.key_caches.1,
                row_caches_bytes: memory.row_caches.0,
                row_caches_budget_bytes: memory.row_caches.1,
                requests_bytes: self.replica.memory().used() as u64,
                requests_budget_bytes: self.replica.memory().limit() as u64,
            },
            block_cache: Cache::new(memory.block_cache, self.recent.earlier_blocks()),
            troubles: self.health().troubles,
        }
    }

    /// SSTables of all column families.
    pub(super) fn load_bytes(&self) -> u64 {
        self.storage.families().map(|store| store.statistics().live_bytes).sum()
    }

    /// Compactions: those that are running, and what there was since the start.
    pub(super) fn compactions(&self) -> Compactions {
        let (storage, now) = (&self.storage, self.clock.monotonic());
        let running = storage.compactions().into_iter().map(|progress| Compaction {
            id: progress.id,
            kind: progress.kind.to_string(),
            family: (&*progress.family).into(),
            inputs: progress.inputs.iter().map(|path| path.display().to_string()).collect(),
            bytes_total: progress.bytes_total,
            bytes_read: progress.bytes_read,
            bytes_written: progress.bytes_written,
            rows: progress.rows,
            running_seconds: now.saturating_sub(progress.started).as_secs(),
        });
        let pending = storage.pending_compactions().into_iter().map(|(id, count)| {
            PendingCompactions { family: (&**storage.schema().family(id)).into(), count }
        });
        Compactions {
            running: running.collect(),
            pending: pending.collect(),
            totals: storage.compaction_totals(),
        }
    }

    /// Begins an operation, which goes on by itself.
    pub(super) fn begin(&self, operation: Operation) -> Result<OperationState, AdminError> {
        let begun = self.member.operations().begin(operation);
        begun.map_err(|error| AdminError::new(StatusCode::CONFLICT, error))?;
        self.operation().ok_or_else(AdminError::stopping)
    }

    /// The operation that was begun last.
    pub(super) fn operation(&self) -> Option<OperationState> {
        self.member.operations().report().map(state)
    }

    /// State of the node, and the data that move.
    pub(super) fn streams(&self) -> Streams {
        let StreamsNow { mode, sending, receiving } = self.member.operations().streams();
        let report = |Stream { peer, family, bytes }: Stream| {
            let family = (&**self.storage.schema().family(family)).into();
            StreamReport { address: peer, family, bytes }
        };
        let report = |streams: Vec<Stream>| streams.into_iter().map(report).collect();
        let is_running = |it: &OperationState| it.done.is_none() && it.error.is_none();
        let operation = self.operation().filter(is_running);
        Streams { mode, operation, sending: report(sending), receiving: report(receiving) }
    }

    /// A token as text.
    pub(super) fn parse_token(&self, token: &str) -> Result<Token, AdminError> {
        let parsed = self.storage.partitioner().parse_token(token);
        parsed.map_err(|why| AdminError::bad_request(format_args!("{token} is no token: {why}")))
    }

    /// Whether the node can serve.
    pub(super) fn health(&self) -> Health {
        let mut troubles = self.storage.troubles();
        if self.member.coordinator().peers().is_self_removed {
            let text = "was removed from the ring or replaced: it serves nobody".to_owned();
            troubles.push(Trouble { kind: TroubleKind::Removed, text });
        } else if !self.member.operations().is_member() {
            let mode = self.operation().map_or_else(|| "starting".to_owned(), |it| it.mode);
            let text = format!("is no member of the ring: {mode}");
            troubles.push(Trouble { kind: TroubleKind::Outside, text });
        }
        let conflict = self.member.with_gossip(|gossiper, _| gossiper.generation_conflict());
        let refused = |text: String| Trouble { kind: TroubleKind::Refused, text };
        troubles.extend(conflict.map(|conflict| refused(conflict.to_string())));
        let takes_writes = !troubles.iter().any(|trouble| trouble.kind.refuses_writes());
        Health { takes_writes, troubles }
    }

    /// Work by kind, under the names of the thread pools that do it in 0.6, in any order.
    ///
    /// Work that is done on the thread that it comes on never waits, and what was done counts as
    /// completed. Pools of 0.6 that nothing here corresponds to are left out.
    pub(super) fn pools(&self) -> Vec<Pool> {
        let families = self.storage.families_since_start();
        let statistics: Vec<_> = families.map(|store| store.statistics()).collect();
        let sum = |of: fn(&FamilyStatistics) -> u64| -> u64 { statistics.iter().map(of).sum() };
        let coordinator = self.member.coordinator().stats();
        let gossip = self.member.with_gossip(|gossiper, _| gossiper.received);
        let mut pools = vec![
            worked("ROW-READ-STAGE", self.replica.read_load(), {
                sum(|it| it.reads.count + it.range_reads.count)
            }),
            worked("ROW-MUTATION-STAGE", self.replica.write_load(), sum(|it| it.writes.count)),
            pool("RESPONSE-STAGE", 0, 0, coordinator.answers),
            pool("GMFD", 0, 0, gossip),
            pool("CONSISTENCY-MANAGER", coordinator.comparing as u64, 0, coordinator.comparisons),
        ];
        pools.extend(self.flush_pools(sum(|it| it.memtables_flushing as u64), {
            sum(|it| it.memtable_switches)
        }));
        pools.extend(self.hint_pool());
        pools
    }

    /// Memtables on their way to the disk: a writer, and after it the notes to the commit log.
    fn flush_pools(&self, unwritten: u64, switches: u64) -> [Pool; 2] {
        let written = switches.saturating_sub(unwritten);
        let active = (self.storage.flushes_running() as u64).min(unwritten);
        [
            pool("FLUSH-WRITER-POOL", active, unwritten - active, written),
            pool("MEMTABLE-POST-FLUSHER", 0, unwritten, written),
        ]
    }

    /// Deliveries of hints; `None` with `HintedHandoffEnabled` off.
    fn hint_pool(&self) -> Option<Pool> {
        let (running, ended) = self.member.handoff()?.deliveries();
        let is_due = |state: HintState| matches!(state, HintState::Due | HintState::PutOff);
        let due = self.hints().targets.iter().filter(|target| is_due(target.state)).count();
        Some(pool("HINTED-HANDOFF-POOL", running as u64, due as u64, ended))
    }
}

fn state(report: OperationReport) -> OperationState {
    let OperationReport { kind, began, mode, fetched, repaired, hashed, took, outcome } = report;
    let collected = fetched.into_iter();
    let collected = collected.map(|(address, progress)| Collected { address, progress });
    let (done, error) = match outcome {
        None => (None, None),
        Some(Ok(done)) => (Some(done), None),
        Some(Err(error)) => (None, Some(error)),
    };
    OperationState {
        operation: kind.name().to_owned(),
        began: began.as_secs_f64(),
        mode,
        seconds: took.as_secs_f64(),
        collected: collected.collect(),
        repaired,
        rows_hashed: hashed.0,
        rows_to_hash: hashed.1,
        done,
        error,
    }
}

fn worked(name: &str, load: PoolLoad, completed: u64) -> Pool {
    pool(name, load.active as u64, load.waiting as u64, completed)
}

fn pool(name: &str, active: u64, pending: u64, completed: u64) -> Pool {
    Pool { pool: name.to_owned(), active, pending, completed }
}
