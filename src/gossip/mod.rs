//! Who is in the cluster, who seems alive, and what each node says of itself.
//!
//! Every second a node tells a few others the versions of all that it knows. They ask for what is
//! news to them and send what is news to the sender: three messages, SYN, ACK and ACK2. What
//! travels is an [`EndpointState`] for each node: a heartbeat that grows every second, and named
//! texts such as `MOVE`, its place on the ring.
//!
//! Nothing here waits, sends or looks at a clock: time, chance and messages come in, messages and
//! events come out.

mod admission;
mod claims;
mod endpoint_state;
mod event;
mod failure_detector;
mod first_question;
mod forgotten;
mod gossiper;
mod membership;
mod membership_change;
mod message;
mod move_state;
mod plan_state;
mod removed_state;
mod shown;
mod unheard;

pub use admission::Refusal;
pub use endpoint_state::{EndpointState, VersionedValue};
pub use event::GossipEvent;
pub use failure_detector::FailureDetector;
pub use gossiper::{Effects, GenerationConflict, Gossiper, GossiperOptions};
pub use membership::{Members, Membership};
pub use membership_change::{MembershipChange, MembershipNotice, RemovedNode};
pub use message::{Digest, GossipMessage, MessageKind};
pub use move_state::{BadMove, Move};
pub use plan_state::{NodePlace, Plan};
pub use removed_state::names as names_removal;

use std::time::Duration;

/// How often a node gossips.
pub const GOSSIP_INTERVAL: Duration = Duration::from_secs(1);

/// How long nodes wait until all have heard of a change of the ring.
pub const RING_DELAY: Duration = Duration::from_secs(30);

/// The application state with the place of a node on the ring, as [`Move`] reads it.
pub const MOVE_STATE: &str = "MOVE";

/// The application state with the bytes that a node has on its disks, a decimal number.
pub const LOAD_STATE: &str = "LOAD-INFORMATION";

/// The application state with the extensions of the node wire that a node understands, separated
/// by commas. Originals store it and pass it on, and have none themselves.
pub const EXTENSIONS_STATE: &str = "X-ALEXANDRA";

/// The application state with what a node says of a place besides its `MOVE`, as [`Plan`] reads it.
pub const PLAN_STATE: &str = "X-ALEXANDRA-PLAN";

/// The application state with the removed nodes that a node remembers, each with the start that was
/// removed: who finds its own one there serves no more.
pub const REMOVED_STATE: &str = "X-ALEXANDRA-REMOVED";

/// Application state of ours from a node that may lack data of its place, and so must not be read
/// from: `refused`, or `unsure` if others may know another node there, so that a write counts on it
/// as little as on one that is dead.
pub const READS_STATE: &str = "X-ALEXANDRA-READS";

/// The application state with a fingerprint of what all nodes have to agree on: schema, replication
/// and what goes with them. Only nodes of this program have one.
pub const SCHEMA_STATE: &str = "X-ALEXANDRA-SCHEMA";

/// The application state with the version of the program that a node of this program runs.
pub const VERSION_STATE: &str = "X-ALEXANDRA-VERSION";
