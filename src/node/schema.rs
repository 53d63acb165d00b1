//! The schema that was made over CQL, as part of a node.

use super::Member;
use super::setup::family_options;
use crate::base::clock::Clock;
use crate::base::fs::FileSystem;
use crate::base::latest::Latest;
use crate::base::limited_log::LimitedLog;
use crate::config::classes::StrategyName;
use crate::config::settings::ColumnFamilySettings;
use crate::config::{Placements, Settings};
use crate::gossip::{EXTENSIONS_STATE, Gossiper};
use crate::model::register::Kept;
use crate::replica::Follower;
use crate::ring::{ReplicaPlacement, ReplicationStrategy, Snitch};
use crate::schema::{Replication, SavedSchema, SchemaError, SchemaHost, SchemaRegister, read};
use crate::storage::FamilyOptions;
use log::Level;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The schema at a start.
#[derive(Debug)]
pub(super) struct Schemas {
    /// The settings with all that was made over CQL.
    pub(super) settings: Settings,
    pub(super) saved: SavedSchema,
    /// Placements of all keyspaces.
    pub(super) placements: BTreeMap<String, ReplicaPlacement>,
    pub(super) snitch: Snitch,
}

impl Schemas {
    /// Reads what was made over CQL. Its keyspaces are placed by the snitch of the first one of the
    /// configuration.
    pub(super) fn read(
        settings: &Settings,
        configured: &Placements,
        fs: &dyn FileSystem,
    ) -> Result<Self, SchemaError> {
        let first = settings.keyspaces.first();
        let first = first.and_then(|keyspace| configured.by_keyspace.get(&keyspace.name));
        let snitch = first.map_or(Snitch::EndPoint, |placement| placement.snitch.clone());
        let (mut settings, mut placements) = (settings.clone(), configured.by_keyspace.clone());
        let saved = read(&mut settings, fs)?;
        for (name, keyspace) in &saved.definitions.keyspaces {
            if let Some(replication) = &keyspace.replication {
                placements.insert(name.clone(), placement(replication, &snitch));
            }
        }
        Ok(Self { settings, saved, placements, snitch })
    }
}

fn placement(replication: &Replication, snitch: &Snitch) -> ReplicaPlacement {
    let strategy = match replication.strategy {
        StrategyName::RackUnaware => ReplicationStrategy::RackUnaware,
        StrategyName::RackAware => ReplicationStrategy::RackAware,
        StrategyName::DatacenterShard => {
            let factors = replication.data_centers.iter();
            let factors = factors.map(|(name, factor)| (name.clone(), *factor as usize));
            return ReplicaPlacement::per_data_center(factors.collect(), snitch.clone());
        }
    };
    let replication_factor = replication.factor as usize;
    ReplicaPlacement { strategy, replication_factor, snitch: snitch.clone() }
}

/// The node, for changes of its schema.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) member: Arc<Member>,
    pub(super) settings: Arc<Latest<Settings>>,
    pub(super) snitch: Snitch,
}

impl Host {
    /// The other nodes of the ring, and those that are about to join it.
    fn others(&self) -> Vec<IpAddr> {
        let local = self.member.local();
        self.member.with_gossip(|_, membership| {
            let members = membership.members();
            let nodes = members.ring.members().map(|(_, node)| node);
            let all = nodes.chain(members.bootstrapping.keys().copied());
            all.filter(|node| *node != local).collect()
        })
    }
}

/// Has the node follow the schema on which the ring agrees, as long as the node is there.
#[derive(Debug)]
pub(super) struct SchemaFollower {
    register: Weak<SchemaRegister>,
    /// A failure repeats as often as others tell of the change.
    log: LimitedLog<()>,
}

impl SchemaFollower {
    pub(super) fn new(register: &Arc<SchemaRegister>, clock: Arc<dyn Clock>) -> Self {
        let log = LimitedLog::new(module_path!(), clock, Duration::from_secs(10));
        Self { register: Arc::downgrade(register), log }
    }
}

impl Follower for SchemaFollower {
    fn follow(&self, kept: &Kept) -> bool {
        let Some(register) = self.register.upgrade() else { return false };
        let followed = register.follow(&kept.value);
        if let Err(error) = &followed {
            let line =
                format_args!("This node does not follow a change of the schema yet: {error}");
            self.log.log(Level::Error, (), line);
        }
        followed.is_ok()
    }
}

impl SchemaHost for Host {
    fn refusal(&self) -> Option<String> {
        let is_original = |gossiper: &Gossiper, node: IpAddr| {
            gossiper.state(node).is_some_and(|it| it.value(EXTENSIONS_STATE).is_none())
        };
        let others = self.others();
        let original = self.member.with_gossip(|gossiper, _| {
            others.into_iter().find(|node| is_original(gossiper, *node))
        });
        original.map(|node| {
            format!(
                "{node} is a node of Apache Cassandra 0.6, which cannot have tables that are made \
                 over CQL: replace all such nodes first"
            )
        })
    }

    fn is_alone(&self) -> bool {
        self.others().is_empty()
    }

    fn family_options(&self, family: &ColumnFamilySettings) -> FamilyOptions {
        family_options(&self.settings, family)
    }

    fn placement(&self, replication: &Replication) -> ReplicaPlacement {
        placement(replication, &self.snitch)
    }

    fn refresh(&self) {
        self.member.refresh();
    }
}
