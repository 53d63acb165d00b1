//! A node on its own, as far as a coordinator needs one.

use super::clock::ManualClock;
use super::disk::SimFileSystem;
use super::network::Network;
use super::storage;
use alexandra::base::budget::Budget;
use alexandra::base::worker::Spawner;
use alexandra::coordinator::{Coordinator, CoordinatorOptions, Peers, ReadOptions};
use alexandra::model::schema::Schema;
use alexandra::net::messenger::Messenger;
use alexandra::replica::{Replica, ReplicaOptions};
use alexandra::ring::{
    Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch, Token, TokenMetadata,
};
use alexandra::storage::Database;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// The only node of its ring, with an empty disk.
pub(crate) struct LoneNode {
    pub(crate) coordinator: Arc<Coordinator>,
    storage: Arc<Database>,
}

impl LoneNode {
    /// Starts it with one replica of this keyspace, one thread that reads, and one that writes.
    pub(crate) fn start(
        schema: &Arc<Schema>,
        keyspace: &str,
        (partitioner, token): (Partitioner, Token),
        rpc_timeout: Duration,
        clock: &Arc<ManualClock>,
    ) -> Self {
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (disk, clock_of_storage) = (SimFileSystem::new(1), Arc::clone(clock) as _);
        let options = storage::options();
        let storage = storage::open(&disk, clock_of_storage, options, partitioner, schema);
        let options = ReplicaOptions {
            concurrent_reads: 1,
            concurrent_writes: 1,
            memory: Budget::new(1 << 20),
            spawner: Spawner::Threads,
        };
        let placement = ReplicaPlacement {
            strategy: ReplicationStrategy::RackUnaware,
            replication_factor: 1,
            snitch: Snitch::EndPoint,
        };
        let transport = Arc::new(Network::default());
        let messenger = Messenger::new(local, rpc_timeout, Arc::clone(clock) as _, transport);
        let coordinator = Coordinator::new(CoordinatorOptions {
            schema: Arc::clone(schema),
            partitioner,
            placements: Arc::new(BTreeMap::from([(keyspace.to_owned(), placement)]).into()),
            ring: TokenMetadata::single(token, local),
            peers: Peers::default(),
            local,
            replica: Arc::new(Replica::start(Arc::clone(&storage), options).unwrap()),
            messenger: Arc::new(messenger),
            hinting: None,
            reads: ReadOptions {
                speculative_percentile: None,
                repairs: true,
                dynamic_snitch: None,
            },
            seed: 1,
        });
        Self { coordinator, storage }
    }

    /// Writes all rows to files, which the threads of the node read from then on.
    pub(crate) fn flush(&self) {
        let families = self.storage.schema().families();
        families.for_each(|(family, _)| self.storage.flush(family).unwrap());
    }
}
