//! What gossip finds out. `Display` is the operator's log line, in the words of 0.6 where it had
//! any.

use super::admission::Refusal;
use super::endpoint_state::VersionedValue;
use super::gossiper::GenerationConflict;
use super::shown::Shown;
use log::Level;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Something that a gossiper found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GossipEvent {
    /// An endpoint is known that was not. It counts as dead until it is [`Self::Up`].
    Appeared {
        /// Who.
        endpoint: IpAddr,
        /// Its generation.
        generation: i32,
    },
    /// An endpoint that counted as dead is alive.
    Up {
        /// Who.
        endpoint: IpAddr,
    },
    /// An endpoint is silent for too long, and counts as dead.
    Down {
        /// Who.
        endpoint: IpAddr,
    },
    /// An endpoint was started anew. It counts as alive, whatever it did before.
    Restarted {
        /// Who.
        endpoint: IpAddr,
        /// Its new generation.
        generation: i32,
    },
    /// An endpoint says something new of itself.
    StateChanged {
        /// Who.
        endpoint: IpAddr,
        /// Its generation.
        generation: i32,
        /// What it is that changed, `MOVE` for one.
        name: String,
        /// What it is now, and at which count of the endpoint it became so.
        state: VersionedValue,
    },
    /// An endpoint without a place on the ring was silent for so long that it is not known any
    /// more.
    Forgotten {
        /// Who.
        endpoint: IpAddr,
        /// After how long a silence such endpoints are forgotten.
        silence: Duration,
    },
    /// Most other members do not know a member of the saved ring, of which nothing was heard since
    /// the start. It has left the ring while this node did not run.
    Disowned {
        /// Who.
        endpoint: IpAddr,
    },
    /// A node of another cluster tried to talk to this one. It gets no answer.
    ClusterNameMismatch {
        /// Who.
        from: IpAddr,
        /// Its cluster.
        theirs: String,
        /// The cluster of this node.
        ours: String,
    },
    /// The others remembered a greater generation of this node, which goes on with a greater one
    /// yet. It has to be saved before the messages of the same effects are sent.
    OwnGenerationRaised {
        /// The generation from now on.
        generation: i32,
    },
    /// Other nodes have refused the generation of this node, which goes on with a smaller one. It
    /// has to be saved before the messages of the same effects are sent.
    OwnGenerationLowered {
        /// The generation from now on.
        generation: i32,
    },
    /// Other nodes ignore this one for its generation.
    GenerationConflict(GenerationConflict),
    /// No node has refused the generation of this node for a while.
    OwnGenerationAccepted,
    /// This node did not run for longer than others may have waited for it. It asks them for what
    /// has changed, and serves no requests meanwhile.
    StoodStill {
        /// Length of the pause.
        pause: Duration,
    },
    /// Something that a peer passed on is not taken. The rest of its message is.
    Refused {
        /// Whom it is about.
        endpoint: IpAddr,
        /// Who passed it on.
        from: IpAddr,
        /// Why.
        refusal: Refusal,
    },
}

impl GossipEvent {
    /// The endpoint that gives reason for the event; `None` for this node itself.
    pub fn about(&self) -> Option<IpAddr> {
        match self {
            Self::Appeared { endpoint, .. }
            | Self::Up { endpoint }
            | Self::Down { endpoint }
            | Self::Restarted { endpoint, .. }
            | Self::StateChanged { endpoint, .. }
            | Self::Forgotten { endpoint, .. }
            | Self::Disowned { endpoint } => Some(*endpoint),
            Self::ClusterNameMismatch { from, .. } | Self::Refused { from, .. } => Some(*from),
            Self::OwnGenerationRaised { .. }
            | Self::OwnGenerationLowered { .. }
            | Self::GenerationConflict(_)
            | Self::StoodStill { .. }
            | Self::OwnGenerationAccepted => None,
        }
    }

    /// How loudly the log says it.
    pub fn level(&self) -> Level {
        match self {
            Self::StateChanged { .. } => Level::Debug,
            Self::ClusterNameMismatch { .. }
            | Self::Disowned { .. }
            | Self::OwnGenerationRaised { .. }
            | Self::OwnGenerationLowered { .. }
            | Self::OwnGenerationAccepted
            | Self::StoodStill { .. }
            | Self::Refused { .. } => Level::Warn,
            Self::GenerationConflict(_) => Level::Error,
            _ => Level::Info,
        }
    }
}

impl fmt::Display for GossipEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Appeared { endpoint, .. } => {
                write!(f, "Node /{endpoint} is now part of the cluster")
            }
            Self::Up { endpoint } => write!(f, "InetAddress /{endpoint} is now UP"),
            Self::Down { endpoint } => write!(f, "InetAddress /{endpoint} is now dead."),
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
            Self::Disowned { endpoint } => write!(
                f,
                "Node /{endpoint} of the saved ring is unknown to most other nodes, \
                 removing it from the ring"
            ),
            Self::ClusterNameMismatch { from, theirs, ours } => {
                write!(f, "ClusterName mismatch from /{from} {}!={ours}", Shown(theirs))
            }
            Self::OwnGenerationRaised { generation } => write!(
                f,
                "Other nodes remember a later start of this node; \
                 its generation is {generation} from now on"
            ),
            Self::OwnGenerationLowered { generation } => write!(
                f,
                "Other nodes refuse the generation of this node, which an earlier start with a \
                 wrong clock has left: it is {generation} from now on"
            ),
            Self::GenerationConflict(conflict) => write!(f, "{conflict}"),
            Self::OwnGenerationAccepted => {
                f.write_str("No node refuses the generation of this node any more")
            }
            Self::StoodStill { pause } => write!(
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
