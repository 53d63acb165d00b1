//! How a ring grows, shrinks and heals.
//!
//! ```text
//! Operations      bootstrap, decommission, move, removal, replacement, cleanup: one at a time
//!   transition    the steps of all of them: announce, be heard, hand over, switch
//!     plan        who needs which ranges, and from whom
//!     fetch       ranges of other nodes become SSTables, piece by piece
//!   service       the calls of other nodes: pieces of ranges, orders to collect, questions
//!     orders      what this node collects because another one leaves or removes somebody
//!   original      the same with nodes of 0.6, which know none of it
//!   host          the node as all of that sees it
//! anti_entropy    replicas compare what they have, and get what they lack
//! merkle          how two replicas find out in which ranges they differ
//! ```
//!
//! Between nodes of this program nothing is sent unasked: whoever needs data asks for them piece by
//! piece, and says behind what the next piece begins. The source reads what it has, in memory and
//! on disk; it writes nothing for that, and keeps nothing in mind. So exactly the ranges that are
//! needed travel, and there is no session that could hang.

mod anti_entropy;
mod calls;
mod error;
mod fetch;
mod halving;
mod host;
pub mod merkle;
mod operation;
mod operations;
mod orders;
mod original;
mod plan;
mod progress;
mod service;
mod text_key;
mod throttle;
mod traffic;
mod transition;

pub use anti_entropy::{FamilyRepair, RepairScope, RowsHashed};
pub use error::OperationError;
pub use host::{Announced, Host, Place, RingLook};
pub use operation::{OperationKind, OperationReport};
pub use operations::{Beginning, Operations, OperationsOptions, StartWish, StreamsNow, Wish};
pub use plan::NoSource;
pub use progress::Fetched;
pub use traffic::Stream;
