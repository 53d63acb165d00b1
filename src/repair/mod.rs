//! Changes of the ring, and repair.
//!
//! ```text
//! Operations  bootstrap, decommission, move, removal, replacement, cleanup, repair: one at a time
//!   topology  the steps of changes of the ring: announce, be heard, hand over, switch
//!   compare   replicas compare rows, and collect what they lack
//!   transfer  ranges and rows of other nodes become SSTables
//!   service   calls between nodes
//!   job       work by one node for another: start, poll, cancel
//!   legacy    the same with nodes of 0.6: streams, trees, tokens
//!   host      this node, for all of these
//! ```
//!
//! Nodes of this program request data: a node that needs rows asks for one page after the other,
//! and names the position after which the next page begins. The source reads from memory and disk,
//! writes nothing, and keeps no session. So exactly the needed ranges travel, and nothing can hang.

mod calls;
mod compare;
mod error;
mod host;
mod job;
mod legacy;
mod operation;
mod operations;
mod progress;
mod service;
mod topology;
mod traffic;
mod transfer;

pub use compare::{FamilyRepair, Received, RepairScope};
pub use error::OperationError;
pub use host::{Announced, Host, RingSnapshot};
pub use operation::{OperationKind, OperationReport};
pub use operations::{Operation, Operations, OperationsOptions, StreamsNow};
pub use progress::Progress;
pub use topology::{Lifecycle, StartMode, StartOptions};
pub use traffic::Stream;
