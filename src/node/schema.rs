//! The schema that was made over CQL, as part of a node.

use super::Member;
use super::setup::family_options;
use crate::base::fs::FileSystem;
use crate::config::classes::StrategyName;
use crate::config::settings::ColumnFamilySettings;
use crate::config::{Placements, Settings};
use crate::gossip::EXTENSIONS_STATE;
use crate::ring::{ReplicaPlacement, ReplicationStrategy, Snitch};
use crate::schema::{Replication, SavedSchema, SchemaError, SchemaHost, read};
use crate::storage::FamilyOptions;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    pub(super) settings: Settings,
    pub(super) snitch: Snitch,
}

impl SchemaHost for Host {
    fn refusal(&self) -> Option<String> {
        let local = self.member.local();
        self.member.with_gossip(|gossiper, membership| {
            let members = membership.members();
            let nodes = members.ring.members().map(|(_, node)| node);
            let mut others = nodes.chain(members.bootstrapping.keys().copied());
            let other = others.find(|node| *node != local)?;
            let is_ours =
                |node| gossiper.state(node).is_none_or(|it| it.value(EXTENSIONS_STATE).is_some());
            Some(if is_ours(other) {
                format!(
                    "Schema changes need Paxos among the nodes of the ring, which this version \
                     does not have: {other} is another node of the ring"
                )
            } else {
                format!(
                    "{other} is a node of Apache Cassandra 0.6, which cannot have tables that are \
                     made over CQL: replace all such nodes first"
                )
            })
        })
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
