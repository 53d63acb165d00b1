//! Work by kind, under the names of the thread pools that do it in 0.6.
//!
//! Where this program has no pool, since the work is done on the thread that it comes on, nothing
//! waits, and what was done counts as completed. Pools of 0.6 that nothing here corresponds to are
//! not told of.

use super::context::AdminContext;
use super::report::Pool;
use super::ring_report::HintState;
use crate::replica::PoolLoad;
use crate::storage::family::FamilyStatistics;

impl AdminContext {
    /// All kinds of work, in no order that means anything.
    pub(super) fn pools(&self) -> Vec<Pool> {
        let statistics: Vec<_> = self.storage.families().map(|store| store.statistics()).collect();
        let sum = |of: fn(&FamilyStatistics) -> u64| -> u64 { statistics.iter().map(of).sum() };
        let coordinator = self.member.coordinator().stats();
        let gossip = self.member.with_gossip(|gossiper, _| gossiper.received());
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

    /// Memtables on their way to the disk: a writer, and behind it what the commit log is told.
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
        let (running, ended) = self.member.deliveries()?;
        let is_due = |state: HintState| matches!(state, HintState::Due | HintState::PutOff);
        let due = self.hints().targets.iter().filter(|target| is_due(target.state)).count();
        Some(pool("HINTED-HANDOFF-POOL", running as u64, due as u64, ended))
    }
}

fn worked(name: &str, load: PoolLoad, completed: u64) -> Pool {
    pool(name, load.active as u64, load.waiting as u64, completed)
}

fn pool(name: &str, active: u64, pending: u64, completed: u64) -> Pool {
    Pool { pool: name.to_owned(), active, pending, completed }
}
