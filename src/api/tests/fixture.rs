//! A node with its API, and a connection to it.

use super::super::{Api, ApiOptions, Authenticator};
use crate::base::clock::ManualClock;
use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::model::comparator::Comparator;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use crate::replica::memory_store::MemoryStore;
use crate::replica::{Replica, ReplicaOptions};
use crate::ring::{
    Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch, Token, TokenMetadata,
};
use crate::wire::{ApiVersion, Server, ServerOptions};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Where the clock of the node stands, in seconds.
pub(crate) const NOW: i64 = 1_300_000_000;

/// What a test node is like.
pub(crate) struct Node {
    pub(crate) version: ApiVersion,
    pub(crate) partitioner: Partitioner,
    pub(crate) token: Token,
    pub(crate) authenticator: Authenticator,
    pub(crate) replication_factor: usize,
    pub(crate) families: Vec<ColumnFamilySchema>,
}

/// A node that runs.
pub(crate) struct Running {
    pub(crate) api: Arc<Api>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
}

pub(crate) fn standard(keyspace: &str, name: &str, columns: Comparator) -> ColumnFamilySchema {
    let kind = ColumnFamilyKind::Standard { columns };
    ColumnFamilySchema { keyspace: keyspace.to_owned(), name: name.to_owned(), kind, comment: None }
}

pub(crate) fn super_family(
    keyspace: &str,
    name: &str,
    super_columns: Comparator,
    columns: Comparator,
) -> ColumnFamilySchema {
    let kind = ColumnFamilyKind::Super { super_columns, columns };
    ColumnFamilySchema { kind, ..standard(keyspace, name, Comparator::Bytes) }
}

impl Default for Node {
    fn default() -> Self {
        let comment = |text: &str| Some(text.to_owned());
        let families = vec![
            standard("Blog", "Bytes", Comparator::Bytes),
            standard("Blog", "Long", Comparator::Long),
            ColumnFamilySchema {
                comment: comment("what was said"),
                ..super_family("Blog", "Super", Comparator::Utf8, Comparator::Long)
            },
            ColumnFamilySchema {
                comment: comment("persistent metadata for the local node"),
                ..standard("system", "LocationInfo", Comparator::Bytes)
            },
        ];
        Self {
            version: ApiVersion::V06,
            partitioner: Partitioner::OrderPreserving,
            token: Token::ordered(b"m".as_slice().into()),
            authenticator: Authenticator::AllowAll,
            replication_factor: 1,
            families,
        }
    }
}

impl Node {
    /// Starts the node, and a server for it on some port.
    pub(crate) async fn start(self) -> Running {
        let schema = Arc::new(Schema::new(self.families.into_iter().map(Arc::new)));
        let store = Arc::new(MemoryStore::new(schema.clone(), self.partitioner));
        let options = ReplicaOptions { concurrent_reads: 1, concurrent_writes: 1 };
        let replica = Arc::new(Replica::start(store.clone(), options).unwrap());
        let placement = ReplicaPlacement {
            strategy: ReplicationStrategy::RackUnaware,
            replication_factor: self.replication_factor,
            snitch: Snitch::EndPoint,
        };
        let user_keyspaces = schema.keyspaces().filter(|&name| name != "system");
        let placements: HashMap<_, _> =
            user_keyspaces.map(|name| (name.to_owned(), placement)).collect();
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let coordinator = Coordinator::new(CoordinatorOptions {
            schema: schema.clone(),
            partitioner: self.partitioner,
            placements,
            ring: TokenMetadata::single(self.token, local),
            local,
            rpc_timeout: Duration::from_secs(5),
            replica,
        });
        let clock = Arc::new(ManualClock::at_micros(NOW * 1_000_000));
        let api = Arc::new(Api::new(ApiOptions {
            cluster_name: "Golden".to_owned(),
            version: self.version,
            schema,
            keyspaces: Vec::new(),
            config_text: "<Storage/>".to_owned(),
            index_interval: 1,
            authenticator: self.authenticator,
            clock: clock.clone(),
            coordinator,
        }));
        let options =
            ServerOptions { version: self.version, workers: 1, ..ServerOptions::new(clock) };
        let port = std::env::var("TEST_PORT").ok().and_then(|p| p.parse().ok()).unwrap_or(0);
        let server = Server::bind(SocketAddr::new(local, port), options).unwrap();
        let address = server.local_addr().unwrap();
        let stop = CancellationToken::new();
        let (service, stopped) = (api.clone(), stop.clone());
        tokio::spawn(async move { server.run(service, stopped).await.unwrap() });
        Running { api, store, address, stop }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
