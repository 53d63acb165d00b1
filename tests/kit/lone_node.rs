//! A node on its own, as far as a coordinator needs one.

use super::clock::ManualClock;
use super::disk::SimFileSystem;
use super::network::Network;
use super::storage;
use alexandra::base::budget::Budget;
use alexandra::base::worker::Spawner;
use alexandra::config::settings::ColumnFamilySettings;
use alexandra::coordinator::{Coordinator, CoordinatorOptions, Peers, ReadOptions};
use alexandra::model::schema::Schema;
use alexandra::net::messenger::Messenger;
use alexandra::replica::{Replica, ReplicaOptions};
use alexandra::ring::{
    KeyspacePlacements, Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch, Token,
    TokenMetadata,
};
use alexandra::schema::{RegisterOptions, Replication, SavedSchema, SchemaHost, SchemaRegister};
use alexandra::storage::{Database, FamilyOptions};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// The only node of its ring, with an empty disk.
pub(crate) struct LoneNode {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) register: Arc<SchemaRegister>,
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
        let placements = BTreeMap::from([(keyspace.to_owned(), one_replica())]);
        let placements = Arc::new(KeyspacePlacements::from(placements));
        let transport = Arc::new(Network::default());
        let messenger = Messenger::new(local, rpc_timeout, Arc::clone(clock) as _, transport);
        let coordinator = Coordinator::new(CoordinatorOptions {
            schema: Arc::clone(schema),
            partitioner,
            placements: Arc::clone(&placements),
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
        let register = RegisterOptions {
            fs: Arc::new(disk),
            data_directories: vec!["/data".into()],
            storage: Arc::clone(&storage),
            placements,
            host: Box::new(Host(Arc::clone(&coordinator))),
        };
        let register = Arc::new(SchemaRegister::new(register, SavedSchema::default()).unwrap());
        Self { coordinator, register, storage }
    }

    /// Writes all rows to files, which the threads of the node read from then on.
    pub(crate) fn flush(&self) {
        let families = self.storage.schema().families();
        families.for_each(|(family, _)| self.storage.flush(family).unwrap());
    }
}

fn one_replica() -> ReplicaPlacement {
    ReplicaPlacement {
        strategy: ReplicationStrategy::RackUnaware,
        replication_factor: 1,
        snitch: Snitch::EndPoint,
    }
}

/// The node, for changes of its schema.
#[derive(Debug)]
struct Host(Arc<Coordinator>);

impl SchemaHost for Host {
    fn refusal(&self) -> Option<String> {
        None
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn family_options(&self, _: &ColumnFamilySettings) -> FamilyOptions {
        FamilyOptions::default()
    }

    fn placement(&self, _: &Replication) -> ReplicaPlacement {
        one_replica()
    }

    fn refresh(&self) {
        self.0.set_ring((*self.0.ring()).clone(), self.0.peers());
    }
}
