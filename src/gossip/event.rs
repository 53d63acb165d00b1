//! Findings of gossip. `Display` is the operator's log line, in the words of 0.6 where it had any.

use super::admission::{Refusal, Shown};
use super::endpoint_state::VersionedValue;
use super::gossiper::GenerationConflict;
use log::Level;
use std::net::IpAddr;
use std::time::Duration;

/// A finding of a gossiper.
#[expect(missing_docs, reason = "the names of the fields say it")]
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum GossipEvent {
    /// An endpoint became known. It counts as dead until it is [`Self::Up`].
    #[display("Node /{endpoint} is now part of the cluster")]
    Appeared { endpoint: IpAddr, generation: i32 },
    /// An endpoint that counted as dead is alive.
    #[display("InetAddress /{_0} is now UP")]
    Up(IpAddr),
    /// An endpoint was silent for too long, and counts as dead.
    #[display("InetAddress /{_0} is now dead.")]
    Down(IpAddr),
    /// An endpoint was restarted. It counts as alive.
    #[display("Node /{endpoint} has restarted, now UP again")]
    Restarted { endpoint: IpAddr, generation: i32 },
    /// An application state of an endpoint changed.
    #[display("Node /{endpoint} says {} = {}", Shown(name), Shown(&state.value))]
    StateChanged { endpoint: IpAddr, generation: i32, name: String, state: VersionedValue },
    /// An endpoint without a place on the ring was dropped after this silence.
    #[display(
        "FatClient /{endpoint} has been silent for {}ms, removing from gossip",
        silence.as_millis()
    )]
    Forgotten { endpoint: IpAddr, silence: Duration },
    /// A member of the saved ring is unheard since the start and unknown to most other members: it
    /// left the ring while this node was down.
    #[display(
        "Node /{_0} of the saved ring is unknown to most other nodes, removing it from the ring"
    )]
    Disowned(IpAddr),
    /// A node of another cluster sent a message. It gets no answer.
    #[display("ClusterName mismatch from /{from} {}!={ours}", Shown(theirs))]
    ClusterNameMismatch { from: IpAddr, theirs: String, ours: String },
    /// Other nodes remember a greater generation of this node, which continues with one above it.
    /// The new generation has to be saved before the messages of the same effects are sent.
    #[display(
        "Other nodes remember a later start of this node; its generation is {_0} from now on"
    )]
    OwnGenerationRaised(i32),
    /// Other nodes refuse the generation of this node, which continues with a smaller one. It has
    /// to be saved before the messages of the same effects are sent.
    #[display(
        "Other nodes refuse the generation of this node, which an earlier start with a wrong clock \
         has left: it is {_0} from now on"
    )]
    OwnGenerationLowered(i32),
    /// Other nodes ignore this node because of its generation.
    GenerationConflict(GenerationConflict),
    /// No node has refused the generation of this node for a while.
    #[display("No node refuses the generation of this node any more")]
    OwnGenerationAccepted,
    /// This node paused for longer than others may have waited for it. It asks them for changes,
    /// and serves no requests meanwhile.
    #[display(
        "This node stood still for {} s, and refuses requests until it has heard how the ring is \
         now",
        _0.as_secs()
    )]
    StoodStill(Duration),
    /// A part of a message is refused. The rest of the message is taken.
    #[display("Ignoring gossip about /{endpoint} from /{from}: {refusal}")]
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
