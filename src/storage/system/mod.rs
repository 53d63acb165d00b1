//! State that a node keeps about itself.
//!
//! ```text
//!   column family LocationInfo of the keyspace system, as 0.6 has it
//!     identity         its token, its generation, the names of its cluster and of its partitioner
//!     later_data       that it has what no node of 0.6 can have
//!     local_placement  how far it has come on its way onto the ring
//!     saved_ring       the other nodes of the ring
//!   column family Paxos of the keyspace system
//!     registers        its state as a participant of registers
//!   column family Batches of the keyspace system
//!     batches          logged batches that it keeps for coordinators
//!   files in the data directories
//!     node_id          the number by which its manifests are known
//!     log_guard        that there is a commit log, so that a lost one is missed
//! ```

pub mod batches;
mod identity;
pub mod later_data;
pub mod local_placement;
pub mod log_guard;
pub mod node_id;
pub mod registers;
pub mod saved_ring;

pub use identity::{
    Identity, IdentityError, Saved, check_no_data, establish_identity, identity_for_original,
    save_generation,
};

use super::database::Database;
use super::error::ReadError;
use super::sstable::Access;
use crate::base::context::RequestContext;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::slice::Slice;
use crate::model::version::RowVersion;

/// The keyspace of the node's own data.
pub const KEYSPACE: &str = "system";

/// Its column family for facts about the node.
pub const LOCATION_INFO: &str = "LocationInfo";

/// The row of [`LOCATION_INFO`] that has these facts.
pub const ROW: &str = "L";
const TOKEN: &[u8] = b"Token";

fn location_info(storage: &Database) -> FamilyId {
    let family = storage.schema().family_id(KEYSPACE, LOCATION_INFO);
    family.expect("every schema has the system keyspace")
}

/// Reads a row of [`LOCATION_INFO`], tombstones included. Those that are left out are older than
/// the clock, and so than what is noted by it.
fn read_row(storage: &Database, key: &str) -> Result<RowVersion, ReadError> {
    let (family, key, all) = (location_info(storage), RowKey::from(key), Slice::all(None));
    storage.family(family).read_version(&key, &all, &RequestContext::default(), Access::Cached)
}
