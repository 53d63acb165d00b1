//! Descriptions of the node: keyspaces, ring, splits.

use super::{Service, ServiceError};
use crate::config::settings::{ColumnFamilySettings, KeyspaceSettings, SYSTEM_KEYSPACE};
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{Partitioner, ReplicationStrategy, TokenRange, Topology};
use crate::schema::SchemaRegister;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::Arc;
use tokio::sync::watch;

/// A range of the ring, with the nodes that hold it, the owner first.
type HeldRange = ([String; 2], Vec<IpAddr>);

/// A node of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its address.
    pub address: IpAddr,
    /// Its tokens, in the form of the partitioner.
    pub tokens: Vec<String>,
    /// Its data centre and rack, as the snitch of the first keyspace names them.
    pub data_center: String,
    /// See there.
    pub rack: String,
    /// Whether its schema is that of this node, as far as is known.
    pub agrees: bool,
}

impl Service {
    /// The nodes of the ring, this one among them.
    pub fn ring_nodes(&self) -> Vec<NodeView> {
        let ring = self.options.coordinator.ring();
        ring.members().map(|(_, address)| self.node_view(address)).collect()
    }

    /// This node.
    pub fn local_node(&self) -> NodeView {
        self.node_view(self.options.coordinator.local())
    }

    fn node_view(&self, address: IpAddr) -> NodeView {
        let ring = self.options.coordinator.ring();
        let partitioner = self.options.coordinator.partitioner();
        let tokens = ring.token(address).map(|token| partitioner.format_token(token));
        let mut names = self.keyspaces().iter().map(|keyspace| keyspace.name.as_str());
        let placement = names.find_map(|name| self.options.coordinator.placement(name));
        let topology = placement.map_or(Topology::Octets, |it| it.snitch.topology());
        NodeView {
            address,
            tokens: tokens.into_iter().collect(),
            data_center: topology.data_center(address).into_owned(),
            rack: topology.rack(address).into_owned(),
            agrees: self.agrees_with(address),
        }
    }

    fn agrees_with(&self, node: IpAddr) -> bool {
        let coordinator = &self.options.coordinator;
        node == coordinator.local() || coordinator.agrees_on_registers(node)
    }

    /// From row keys to tokens.
    pub fn ring_partitioner(&self) -> Partitioner {
        self.options.coordinator.partitioner()
    }

    /// The keyspaces as configured.
    pub fn keyspaces(&self) -> &[KeyspaceSettings] {
        &self.options.settings.keyspaces
    }

    /// Keyspaces, tables and types that were made over CQL.
    pub fn register(&self) -> &Arc<SchemaRegister> {
        &self.options.register
    }

    /// Whether the replicas of a keyspace are placed by data centre.
    pub fn knows_data_centers(&self, keyspace: &str) -> bool {
        let placement = self.options.coordinator.placement(keyspace);
        placement.is_some_and(|it| matches!(it.strategy, ReplicationStrategy::PerDataCenter(_)))
    }

    /// `ClusterName`.
    pub fn cluster_name(&self) -> &str {
        &self.options.settings.cluster_name
    }

    /// Text of the configuration file.
    pub fn config_text(&self) -> &str {
        &self.options.settings.text
    }

    /// Class name of the partitioner.
    pub fn partitioner(&self) -> &'static str {
        self.options.coordinator.partitioner().class_name()
    }

    /// A column family as configured.
    pub fn settings(&self, family: &ColumnFamilySchema) -> Option<&ColumnFamilySettings> {
        let keyspace = self.keyspaces().iter().find(|it| it.name == family.keyspace)?;
        keyspace.column_family(&family.name)
    }

    /// The tokens of the ring in its order, for people, with the nodes and whether they seem alive.
    pub fn members(&self) -> Vec<(String, IpAddr, bool)> {
        let partitioner = self.options.coordinator.partitioner();
        let ring = self.options.coordinator.ring();
        let member = |(token, endpoint)| {
            let is_alive = self.options.coordinator.seems_alive(endpoint);
            (partitioner.display_token(token), endpoint, is_alive)
        };
        ring.members().map(member).collect()
    }

    /// Tells when [`Service::members`] may have changed.
    pub fn ring_changes(&self) -> watch::Receiver<()> {
        self.options.coordinator.ring_changes()
    }

    /// The ranges of the ring as a keyspace sees them.
    pub fn ring_of(&self, keyspace: &str) -> Result<Vec<HeldRange>, ServiceError> {
        let placement =
            self.options.coordinator.placement(keyspace).filter(|_| keyspace != SYSTEM_KEYSPACE);
        let placement = placement.ok_or_else(|| {
            ServiceError::invalid(format!("There is no ring for the keyspace: {keyspace}"))
        })?;
        let partitioner = self.options.coordinator.partitioner();
        let ranges =
            placement.describe_ring(&self.options.coordinator.ring()).into_iter().map(|part| {
                let ends = [part.range.start, part.range.end];
                (ends.map(|token| partitioner.format_token(&token)), part.endpoints)
            });
        Ok(ranges.collect())
    }

    /// Tokens that cut a range into parts of about as many keys, judged by this node's data.
    pub async fn splits(
        &self,
        start: &str,
        end: &str,
        keys_per_split: i32,
    ) -> Result<Vec<String>, ServiceError> {
        let partitioner = self.options.coordinator.partitioner();
        let [start, end] = [partitioner.parse_token(start)?, partitioner.parse_token(end)?];
        let keys = NonZero::new(keys_per_split)
            .ok_or_else(|| ServiceError::invalid("keys_per_split must not be zero"))?;
        let tokens = self.options.coordinator.splits(TokenRange { start, end }, keys).await?;
        Ok(tokens.into_iter().map(|token| partitioner.format_token(&token)).collect())
    }
}
