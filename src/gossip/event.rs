//! Findings of gossip. `Display` is the operator's log line, in the words of 0.6 where it had any.

use super::admission::{Refusal, Shown};
use super::endpoint_state::VersionedValue;
use super::gossiper::GenerationConflict;
use log::Level;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// A finding of a gossiper.
#[expect(missing_docs, reason = "the names of the fields say it")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GossipEvent {
    /// An endpoint became known. It counts as dead until it is [`Self::Up`].
    Appeared { endpoint: IpAddr, generation: i32 },
    /// An endpoint that counted as dead is alive.
    Up(IpAddr),
    /// An endpoint was silent for too long, and counts as dead.
    Down(IpAddr),
    /// An endpoint was restarted. It counts as alive.
    Restarted { endpoint: IpAddr, generation: i32 },
    /// An application state of an endpoint changed.
    StateChanged { endpoint: IpAddr, generation: i32, name: String, state: VersionedValue },
    /// An endpoint without a place on the ring was dropped after this silence.
    Forgotten { endpoint: IpAddr, silence: Duration },
    /// A member of the saved ring is unheard since the start and unknown to most other members: it
    /// left the ring while this node was down.
    Disowned(IpAddr),
    /// A node of another cluster sent a message. It gets no answer.
    ClusterNameMismatch { from: IpAddr, theirs: String, ours: String },
    /// Other nodes remember a greater generation of this node, which continues with one above it.
    /// The new generation has to be saved before the messages of the same effects are sent.
    OwnGenerationRaised(i32),
    /// Other nodes refuse the generation of this node, which continues with a smaller one. It has
    /// to be saved before the messages of the same effects are sent.
    OwnGenerationLowered(i32),
    /// Other nodes ignore this node because of its generation.
    GenerationConflict(GenerationConflict),
    /// No node has refused the generation of this node for a while.
    OwnGenerationAccepted,
    /// This node paused for longer than others may have waited for it. It asks them for changes,
    /// and serves no requests meanwhile.
    StoodStill(Duration),
    /// A part of a message is refused. The rest of the message is taken.
    Refused { endpoint: IpAddr, from: IpAddr, refusal: Refusal },
}

impl GossipEvent {
    /// The endpoint that caused the event; `None` for this node itself.
    pub fn about(&self) -> Option<IpAddr> {
        match self {
            Self::Appeared { endpoint, .. }
            | Self::Up(endpoint)
            | Self::Down(endpoint)
            | Self::Restarted { endpoint, .. }
            | Self::StateChanged { endpoint, .. }
            | Self::Forgotten { endpoint, .. }
            | Self::Disowned(endpoint)
            | Self::ClusterNameMismatch { from: endpoint, .. }
            | Self::Refused { from: endpoint, .. } => Some(*endpoint),
            _ => None,
        }
    }

    /// Level of the log line.
    pub fn level(&self) -> Level {
        match self {
            Self::StateChanged { .. } => Level::Debug,
            Self::Appeared { .. }
            | Self::Up(_)
            | Self::Down(_)
            | Self::Restarted { .. }
            | Self::Forgotten { .. } => Level::Info,
            Self::GenerationConflict(_) => Level::Error,
            _ => Level::Warn,
        }
    }
}

impl fmt::Display for GossipEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Appeared { endpoint, .. } => {
                write!(f, "Node /{endpoint} is now part of the cluster")
            }
            Self::Up(endpoint) => write!(f, "InetAddress /{endpoint} is now UP"),
            Self::Down(endpoint) => write!(f, "InetAddress /{endpoint} is now dead."),
            Self::Restarted { endpoint, .. } => {
                write!(f, "Node /{endpoint} has restarted, now UP again")
            }
            Self::StateChanged { endpoint, name, state, .. } => {
                write!(f, "Node /{endpoint} says {} = {}", Shown(name), Shown(&state.value))
            }
            Self::Forgotten { endpoint, silence } => write!(
                f,
                "FatClient /{endpoint} has been silent for {}ms, removing from gossip",
                silence.as_millis()
            ),
            Self::Disowned(endpoint) => write!(
                f,
                "Node /{endpoint} of the saved ring is unknown to most other nodes, \
                 removing it from the ring"
            ),
            Self::ClusterNameMismatch { from, theirs, ours } => {
                write!(f, "ClusterName mismatch from /{from} {}!={ours}", Shown(theirs))
            }
            Self::OwnGenerationRaised(generation) => write!(
                f,
                "Other nodes remember a later start of this node; \
                 its generation is {generation} from now on"
            ),
            Self::OwnGenerationLowered(generation) => write!(
                f,
                "Other nodes refuse the generation of this node, which an earlier start with a \
                 wrong clock has left: it is {generation} from now on"
            ),
            Self::GenerationConflict(conflict) => conflict.fmt(f),
            Self::OwnGenerationAccepted => {
                f.write_str("No node refuses the generation of this node any more")
            }
            Self::StoodStill(pause) => write!(
                f,
                "This node stood still for {} s, and refuses requests until it has heard how the \
                 ring is now",
                pause.as_secs()
            ),
            Self::Refused { endpoint, from, refusal } => {
                write!(f, "Ignoring gossip about /{endpoint} from /{from}: {refusal}")
            }
        }
    }
}
