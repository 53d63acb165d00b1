//! What tests of several nodes stand on: a network within the process, storages on disks that are
//! not there, and a time that moves only when all wait.

use crate::base::clock::Clock;
use crate::base::events::Events;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::model::comparator::Comparator;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use crate::net::messenger::Messenger;
use crate::net::{Channel, Doing, FileConnection, Transport};
use crate::repair::{Announced, Host, Operations, OperationsOptions, Place, RingLook};
use crate::replica::Blocking;
use crate::ring::{
    Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch, Token, TokenMetadata,
};
use crate::storage::Storage;
use crate::storage::engine::Components;
use crate::storage::options::{FamilyOptions, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The time of the runtime, which moves only when all wait.
#[derive(Debug)]
pub(in crate::repair) struct RuntimeClock(Instant);

impl RuntimeClock {
    pub(in crate::repair) fn start() -> Arc<dyn Clock> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for RuntimeClock {
    fn now_micros(&self) -> i64 {
        self.0.elapsed().as_micros() as i64
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What arrives at a node, in order.
pub(in crate::repair) type Arrivals<T> = mpsc::UnboundedReceiver<T>;

/// Where messages go, and one of so many that is lost.
#[derive(Debug, Default)]
pub(in crate::repair) struct Network {
    inboxes: Mutex<BTreeMap<IpAddr, mpsc::UnboundedSender<Arc<[u8]>>>>,
    /// Who gets connections for files. Without it they are refused.
    files: Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>,
    sent: Mutex<usize>,
    pub(in crate::repair) loses_one_of: Mutex<Option<usize>>,
    /// Gets nothing.
    pub(in crate::repair) cut_off: Mutex<Option<IpAddr>>,
}

impl Network {
    /// What comes for these nodes from now on.
    pub(in crate::repair) fn messages_to(&self, nodes: &[IpAddr]) -> Arrivals<Arc<[u8]>> {
        let (inbox, arrivals) = mpsc::unbounded_channel();
        self.inboxes.lock().unwrap().extend(nodes.iter().map(|node| (*node, inbox.clone())));
        arrivals
    }

    /// Connections for files from now on, to whomever.
    pub(in crate::repair) fn take_files(&self) -> Arrivals<DuplexStream> {
        let (sender, files) = mpsc::unbounded_channel();
        *self.files.lock().unwrap() = Some(sender);
        files
    }

    pub(in crate::repair) fn refuse_files(&self) {
        *self.files.lock().unwrap() = None;
    }
}

impl Transport for Network {
    fn send(&self, to: IpAddr, _channel: Channel, message: Arc<[u8]>, _deadline: Duration) {
        let mut sent = self.sent.lock().unwrap();
        *sent += 1;
        let is_lost = self.loses_one_of.lock().unwrap().is_some_and(|of| sent.is_multiple_of(of));
        if !is_lost && *self.cut_off.lock().unwrap() != Some(to) {
            self.inboxes.lock().unwrap()[&to].send(message).unwrap();
        }
    }

    fn disconnect(&self, _peer: IpAddr) {}

    fn set_checksums(&self, _peer: IpAddr, _checksums: bool) {}

    fn dial_for_file(&self, _to: IpAddr) -> Doing<'_, io::Result<FileConnection>> {
        Box::pin(async {
            let files = self.files.lock().unwrap();
            let Some(files) = &*files else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            let (ours, theirs) = tokio::io::duplex(4096);
            files.send(theirs).unwrap();
            Ok(Box::pin(ours) as FileConnection)
        })
    }
}

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
