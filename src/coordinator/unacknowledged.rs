//! How much of what was written other nodes have not acknowledged yet.

use crate::base::lock::{RwLock, rank};
use crate::model::mutation::RowMutation;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of mutations for one node that may wait for its acknowledgement. They are kept in memory,
/// since they become hints when the time is over: without a bound a silent node would cost as much
/// as is written in `RpcTimeoutInMillis`. A node that answers is far from it, and one that is
/// further behind is as good as silent.
pub(super) const MAX_UNACKNOWLEDGED: usize = 64 << 20;

/// What a mutation takes besides its bytes while it waits, about, with those who wait for it.
const MUTATION_OVERHEAD: usize = 512;

/// What one of its cells takes besides its bytes, about.
const CELL_OVERHEAD: usize = 48;

/// What waits for the acknowledgements of each node, in bytes.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    limit: usize,
    /// Of each node to which anything was sent: as many as the ring has.
    nodes: RwLock<rank::State, BTreeMap<IpAddr, AtomicUsize>>,
}

impl Unacknowledged {
    /// Nothing so far. A node that has this much to acknowledge gets no more.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, nodes: RwLock::default() }
    }

    /// Counts a mutation that is to be sent to a node. False, and not counted, if the node has too
    /// much to acknowledge already.
    pub(super) fn admit(&self, node: IpAddr, mutation: &RowMutation) -> bool {
        let cost = cost(mutation);
        let more = |bytes: usize| (bytes < self.limit).then_some(bytes + cost);
        let add = |count: &AtomicUsize| {
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        };
        let known = self.nodes.read().get(&node).map(add);
        known.unwrap_or_else(|| {
            let mut nodes = self.nodes.write();
            add(nodes.entry(node).or_default())
        })
    }

    /// A mutation that was counted waits no more.
    pub(super) fn settle(&self, node: IpAddr, mutation: &RowMutation) {
        let nodes = self.nodes.read();
        if let Some(count) = nodes.get(&node) {
            count.fetch_sub(cost(mutation), Ordering::Relaxed);
        }
    }
}

fn cost(mutation: &RowMutation) -> usize {
    let cells: usize = mutation.families.iter().map(|family| family.cells.len()).sum();
    mutation.record().len() + cells * CELL_OVERHEAD + MUTATION_OVERHEAD
}
