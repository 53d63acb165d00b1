//! The nodes of the cluster, their liveness, and their announcements about themselves.
//!
//! Every second a node sends a few others the versions of all states that it knows. They request
//! what is new to them and send what is new to the sender: three messages, SYN, ACK and ACK2. Each
//! node has an [`EndpointState`]: a heartbeat that grows every second, and named texts such as
//! `MOVE`, its place on the ring.
//!
//! Nothing here waits, sends or reads a clock: time, chance and messages come in, messages and
//! events come out.

mod admission;
mod claims;
mod endpoint_state;
mod event;
mod failure_detector;
mod first_question;
mod gossiper;
mod membership;
mod membership_change;
mod message;
mod peers;
mod place_states;

pub use admission::Refusal;
pub use endpoint_state::{EndpointState, VersionedValue};
pub use event::GossipEvent;
pub use failure_detector::FailureDetector;
pub use first_question::FirstQuestion;
pub use gossiper::{Effects, GenerationConflict, Gossiper, GossiperOptions};
pub use membership::{Members, Membership};
pub use membership_change::{MembershipChange, MembershipNotice, RemovedNode};
pub use message::{Digest, GossipMessage, MessageKind};
pub use place_states::{BadMove, Move, NodePlace, Plan, names_removal};

use std::time::Duration;

/// Time between two rounds of gossip.
pub const GOSSIP_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which all nodes know of a change of the ring.
pub const RING_DELAY: Duration = Duration::from_secs(30);

/// The application state with a node's place on the ring, see [`Move`].
pub const MOVE_STATE: &str = "MOVE";

/// The application state with the bytes on a node's disks, a decimal number.
pub const LOAD_STATE: &str = "LOAD-INFORMATION";

/// The application state with the extensions of the node protocol that a node supports, separated
/// by commas. Nodes of 0.6 store it and pass it on, and have none themselves.
pub const EXTENSIONS_STATE: &str = "X-ALEXANDRA";

/// The application state with a change of the ring that `MOVE` cannot express, see [`Plan`].
pub const PLAN_STATE: &str = "X-ALEXANDRA-PLAN";

/// The application state with the removed nodes that a node remembers, each with the start that was
/// removed: a node that finds its own start there stops serving.
pub const REMOVED_STATE: &str = "X-ALEXANDRA-REMOVED";

/// The application state of a node that may lack data of its place, and so must not be read from:
/// `refused`, or `unsure` if others may know another node there, so that it acknowledges no writes.
pub const READS_STATE: &str = "X-ALEXANDRA-READS";

/// The application state with a fingerprint of the settings on which all nodes have to agree, such
/// as schema and replication. Only nodes of this program have one.
pub const SCHEMA_STATE: &str = "X-ALEXANDRA-SCHEMA";

/// The application state with the registers whose values a node keeps, as `name version,...`.
pub const REGISTERS_STATE: &str = "X-ALEXANDRA-REGISTERS";

/// The application state with the version of this program that a node runs.
pub const VERSION_STATE: &str = "X-ALEXANDRA-VERSION";
