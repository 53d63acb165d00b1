//! Who is in the cluster, who seems alive, and what each node says of itself.
//!
//! Every second a node tells a few others the versions of all that it knows. They ask for what is
//! news to them and send what is news to the sender: three messages, SYN, ACK and ACK2. What
//! travels is an [`EndpointState`] for each node: a heartbeat that grows every second, and named
//! texts such as `MOVE`, its place on the ring.
//!
//! Nothing here waits, sends or looks at a clock: time, chance and messages come in, messages and
//! events come out.

mod endpoint_state;
mod failure_detector;
mod message;
mod move_state;

pub use endpoint_state::{EndpointState, VersionedValue};
pub use failure_detector::FailureDetector;
pub use message::{Digest, GossipMessage, MessageKind};
pub use move_state::{BadMove, Move};

use std::time::Duration;

/// How often a node gossips.
pub const GOSSIP_INTERVAL: Duration = Duration::from_secs(1);

/// How long nodes wait until all have heard of a change of the ring.
pub const RING_DELAY: Duration = Duration::from_secs(30);
