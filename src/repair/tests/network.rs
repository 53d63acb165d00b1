//! Parts of nodes for tests of several: storages on disks in memory, messengers, operations.

use crate::base::clock::Clock;
use crate::base::events::Events;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::kit::network::Network;
use crate::model::comparator::Comparator;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use crate::net::messenger::Messenger;
use crate::repair::{Announced, Host, Operations, OperationsOptions, Place, RingLook};
use crate::replica::Blocking;
use crate::ring::{
    Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch, Token, TokenMetadata,
};
use crate::storage::Storage;
use crate::storage::engine::Components;
use crate::storage::options::{FamilyOptions, Options};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a node knows of the others.
#[derive(Debug)]
pub(in crate::repair) struct Known(pub(in crate::repair) Mutex<RingLook>);

impl Known {
    /// All of these are alive; those that can be called are nodes of this program.
    pub(in crate::repair) fn of(
        local: IpAddr,
        members: &[(Token, IpAddr)],
        callable: BTreeSet<IpAddr>,
    ) -> Arc<Self> {
        let mut ring = TokenMetadata::default();
        for (token, member) in members {
            ring.insert(token.clone(), *member);
        }
        Arc::new(Self(Mutex::new(RingLook {
            members: crate::gossip::Members { ring, ..Default::default() },
            live: members.iter().map(|(_, member)| *member).collect(),
            callable,
            local: Some(local),
            ..RingLook::default()
        })))
    }
}

impl Host for Known {
    fn look(&self) -> RingLook {
        self.0.lock().unwrap().clone()
    }

    fn announce(&self, _place: &Place) {
        panic!("nobody changes the ring here")
    }

    fn learn(&self, _: &[crate::gossip::NodePlace]) {}

    fn be_placed(&self) {}

    fn serve_reads(&self) {
        panic!("nobody changes the ring here")
    }

    fn settle(&self) {
        panic!("nobody changes the ring here")
    }

    fn said(&self) -> Announced {
        panic!("nobody changes the ring here")
    }

    fn has_heard(&self, _of: IpAddr, _announced: Announced) -> bool {
        true
    }

    fn turns_away(&self, _from: IpAddr) -> Option<&'static str> {
        None
    }

    fn is_quiet(&self) -> bool {
        true
    }
}

/// A column family without super columns.
pub(in crate::repair) fn standard() -> ColumnFamilyKind {
    ColumnFamilyKind::Standard { columns: Comparator::Bytes }
}

/// A storage with column families of these keyspaces and names, in which nothing is compacted.
pub(in crate::repair) fn open(
    fs: &SimFileSystem,
    partitioner: Partitioner,
    families: impl IntoIterator<Item = (&'static str, &'static str, ColumnFamilyKind)>,
) -> Arc<Storage> {
    let components = Components {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(ManualClock::default()),
        events: Events::ignored(),
    };
    let family = |(keyspace, name, kind): (&str, &str, _)| {
        let (keyspace, name) = (keyspace.into(), name.into());
        Arc::new(ColumnFamilySchema { keyspace, name, kind, comment: None })
    };
    let schema = Arc::new(Schema::new(families.into_iter().map(family)));
    let options = Options {
        segment_bytes: 1 << 20,
        block_cache_bytes: 1 << 20,
        ..Options::new("/data", "/log")
    };
    let family = |_| FamilyOptions { max_compaction_threshold: 0, ..FamilyOptions::default() };
    Arc::new(Storage::open(components, options, partitioner, schema, family).unwrap())
}

pub(in crate::repair) fn messenger(
    local: IpAddr,
    network: &Arc<Network>,
    clock: &Arc<dyn Clock>,
) -> Arc<Messenger> {
    let (timeout, transport) = (Duration::from_secs(10), Arc::clone(network) as _);
    Arc::new(Messenger::new(local, timeout, Arc::clone(clock), transport))
}

/// The operations of a node, with so many replicas of each row.
pub(in crate::repair) fn operations(
    storage: &Arc<Storage>,
    messenger: &Arc<Messenger>,
    replication_factor: usize,
    clock: &Arc<dyn Clock>,
    seed: u64,
) -> Arc<Operations> {
    let placement = || ReplicaPlacement {
        strategy: ReplicationStrategy::RackUnaware,
        replication_factor,
        snitch: Snitch::EndPoint,
    };
    let families = storage.schema().families();
    let placements = families.map(|(_, family)| (family.keyspace.clone(), placement()));
    Operations::new(OperationsOptions {
        local: messenger.local(),
        storage: Arc::clone(storage),
        messenger: Arc::clone(messenger),
        placements: placements.collect(),
        clock: Arc::clone(clock),
        blocking: Blocking::Inline,
        bytes_per_second: None,
        seed,
    })
}
