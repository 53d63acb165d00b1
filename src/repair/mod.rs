//! How a ring grows, shrinks and heals.
//!
//! ```text
//! Operations  bootstrap, decommission, move, removal, replacement, cleanup: one at a time
//!   topology  the steps of all of them: announce, be heard, hand over, switch
//!   transfer  ranges and rows of other nodes become SSTables
//!   compare   replicas compare what they have, and get what they lack
//!   legacy    the same with nodes of 0.6: streams, trees, tokens
//!   job       work of one node for another: start, poll, cancel
//!   service   the calls of other nodes; `client` makes them
//!   host      the node as all of that sees it
//! ```
//!
//! Between nodes of this program nothing is sent unasked: whoever needs data asks for them piece by
//! piece, and says behind what the next piece begins. The source reads what it has, in memory and
//! on disk; it writes nothing for that, and keeps nothing in mind. So exactly the ranges that are
//! needed travel, and there is no session that could hang.

mod calls;
mod client;
mod compare;
mod error;
mod halving;
mod host;
mod job;
mod legacy;
mod operation;
mod operations;
mod progress;
mod service;
mod throttle;
mod topology;
mod traffic;
mod transfer;

pub use compare::{FamilyRepair, RepairScope};
pub use error::OperationError;
pub use host::{Announced, Host, RingSnapshot};
pub use operation::{OperationKind, OperationReport};
pub use operations::{Operation, Operations, OperationsOptions, StreamsNow};
pub use progress::Progress;
pub use topology::{Lifecycle, StartMode, StartOptions};
pub use traffic::Stream;
pub use transfer::NoSource;
