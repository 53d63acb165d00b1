//! The ring: partitioners, tokens and their ranges, owners, and placement of replicas.
//!
//! Pure data and functions. A [`Partitioner`] maps a row key to its [`Token`]; rows sort as
//! [`DecoratedKey`]s everywhere. [`TokenMetadata`] has the owners of tokens, a [`ReplicaPlacement`]
//! chooses the replicas of a token, and [`ReplicaSets`] has those of all tokens of a ring. A
//! [`Snitch`] knows which endpoints are near, a [`DynamicSnitch`] which ones answer fast. Queries
//! over many rows arrive as [`TokenRange`] or [`KeyBounds`] and are scanned as [`RowRange`]s, which
//! never wrap.

mod collation;
mod data_center_quorum;
mod decorated_key;
mod dynamic_snitch;
mod latencies;
mod midpoint;
mod partitioner;
mod pending;
mod per_data_center;
mod placement;
mod placements;
mod range;
mod replica_sets;
mod row_samples;
mod snitch;
mod token;
mod token_metadata;
mod transition;

pub use decorated_key::DecoratedKey;
pub use dynamic_snitch::DynamicSnitch;
pub use latencies::RecentLatencies;
pub use partitioner::{Partitioner, TokenError};
pub use pending::pending_endpoints;
pub use placement::{EndpointRange, ReplicaPlacement, ReplicationStrategy};
pub use placements::KeyspacePlacements;
pub use range::{KeyBounds, RowRange, StartAfterEnd, TokenRange};
pub use replica_sets::{ReplicaSet, ReplicaSets};
pub use row_samples::RowSamples;
pub use snitch::{DataCenterMap, Location, RackFile, Racks, Snitch, Topology};
pub use token::{CollationKey, OrderedString, Token};
pub use token_metadata::{TokenMetadata, TokenTaken};
pub use transition::{RangeChange, range_changes, ranges_of};
