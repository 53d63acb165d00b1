//! What is taken of what peers pass on.

use super::endpoint_state::{EndpointState, VersionedValue};
use super::move_state::{BadMove, Move};
use super::shown::Shown;
use super::{LOAD_STATE, MOVE_STATE};
use crate::base::utc::UtcTime;
use crate::config::settings::MAX_TOKEN_LENGTH;
use crate::ring::Partitioner;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Most endpoints with a place that a gossiper knows, and most forgotten ones that it remembers.
/// Clusters of the original had a few hundred.
pub(super) const MAX_ENDPOINTS: usize = 1024;

/// Most endpoints without a place that a gossiper knows besides. They get the ring from it whether
/// it knows them or not.
pub(super) const MAX_STRANGERS: usize = 512;

/// How many states an endpoint has at most; an original has two.
pub(super) const MAX_STATES: usize = 16;

/// Longest name of a state, in bytes.
pub(super) const MAX_NAME_LENGTH: usize = 128;

/// Longest value of a state, in bytes. Tokens of order-preserving partitioners are keys.
pub(super) const MAX_VALUE_LENGTH: usize = 4096;

const _: () = assert!(2 * MAX_TOKEN_LENGTH + "NORMAL,,remove,".len() <= MAX_VALUE_LENGTH);

/// How many refusals are remembered, so that each is told once.
const MAX_TOLD: usize = 1024;

/// Why something that a peer passed on is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There are as many endpoints as a gossiper may know.
    TooManyEndpoints,
    /// There are as many endpoints without a place as a gossiper may know.
    TooManyStrangers,
    /// No node can have this address.
    Address,
    /// No node can have started at this generation yet.
    Generation(i32),
    /// The endpoint has as many states as it may have; the value is the name of one more.
    TooManyStates(String),
    /// Name or value of a state are too long; the value is its name.
    TooLong(String),
    /// An original fails on this value of `MOVE`.
    Move {
        /// The whole value.
        value: String,
        /// What is wrong with it.
        reason: BadMove,
    },
    /// A value of `LOAD-INFORMATION` that is no number; an original fails on it.
    Load(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyEndpoints => write!(
                f,
                "{} endpoints are known already, and no more are taken",
                MAX_ENDPOINTS + MAX_STRANGERS
            ),
            Self::TooManyStrangers => write!(
                f,
                "{MAX_STRANGERS} endpoints without a place on the ring are known already, and no \
                 more are taken"
            ),
            Self::Address => f.write_str("this is no address of a node"),
            Self::Generation(generation) => write!(
                f,
                "its generation {generation} is that of a start on {}. Somebody has made that up, \
                 or the clock there or here is wrong",
                UtcTime::of_secs(i64::from(*generation))
            ),
            Self::TooManyStates(name) => {
                write!(f, "{} is more than the {MAX_STATES} states that are taken", Shown(name))
            }
            Self::TooLong(name) => write!(f, "the state {} is too long", Shown(name)),
            Self::Move { value, reason } => write!(f, "{reason} in \"{}\"", Shown(value)),
            Self::Load(value) => write!(f, "the load \"{}\" is no number", Shown(value)),
        }
    }
}

/// Decides what is taken, and sees to it that each refusal is told once.
#[derive(Debug)]
pub(super) struct Admission {
    partitioner: Partitioner,
    /// Endpoint, name of the state and its version; without the latter two for endpoints.
    told: BTreeSet<(IpAddr, String, i32)>,
}

impl Admission {
    pub(super) fn new(partitioner: Partitioner) -> Self {
        Self { partitioner, told: BTreeSet::new() }
    }

    /// Whether nodes may have this address.
    pub(super) fn address(&mut self, endpoint: IpAddr) -> Result<(), Option<Refusal>> {
        if !is_of_a_node(endpoint) {
            return Err(self.once(endpoint, "", 0, Refusal::Address));
        }
        Ok(())
    }

    /// Nobody can have this generation. That is told once for each endpoint.
    pub(super) fn generation(&mut self, endpoint: IpAddr, generation: i32) -> Option<Refusal> {
        self.once(endpoint, "", 2, Refusal::Generation(generation))
    }

    /// There is no room for an endpoint. That is told once for all that find none.
    pub(super) fn no_room(&mut self, refusal: Refusal) -> Option<Refusal> {
        let anybody = IpAddr::from([0; 4]);
        let version = if refusal == Refusal::TooManyStrangers { 3 } else { 1 };
        self.once(anybody, "", version, refusal)
    }

    /// Takes the states out that must not be stored, and so not be passed on either. `known` is
    /// what is known of the endpoint, which is merged with the news. Returns what is to be told.
    pub(super) fn states(
        &mut self,
        endpoint: IpAddr,
        news: &mut EndpointState,
        known: Option<&EndpointState>,
    ) -> Vec<Refusal> {
        let known = known.filter(|known| known.generation == news.generation);
        let mut refusals = Vec::new();
        let mut names: BTreeSet<String> =
            known.into_iter().flat_map(|known| known.states.keys().cloned()).collect();
        news.states.retain(|name, state| {
            let is_new = !names.contains(name);
            let refusal = if is_new && names.len() >= MAX_STATES {
                Refusal::TooManyStates(name.clone())
            } else if let Some(refusal) = self.refusal(name, state) {
                refusal
            } else {
                names.insert(name.clone());
                return true;
            };
            // A line of the log for each: a few tell as much as all.
            if refusals.len() < MAX_STATES {
                refusals.extend(self.once(endpoint, name, state.version, refusal));
            }
            false
        });
        refusals
    }

    fn refusal(&self, name: &str, state: &VersionedValue) -> Option<Refusal> {
        if name.len() > MAX_NAME_LENGTH || state.value.len() > MAX_VALUE_LENGTH {
            return Some(Refusal::TooLong(name.chars().take(MAX_NAME_LENGTH).collect()));
        }
        match name {
            MOVE_STATE => {
                let reason = Move::parse(self.partitioner, &state.value).err()?;
                Some(Refusal::Move { value: state.value.clone(), reason })
            }
            LOAD_STATE => {
                parse_load(&state.value).is_none().then(|| Refusal::Load(state.value.clone()))
            }
            _ => None,
        }
    }

    /// The refusal, unless it was told before. When too many were told they are all forgotten:
    /// better told again than never.
    fn once(&mut self, of: IpAddr, name: &str, version: i32, refusal: Refusal) -> Option<Refusal> {
        if self.told.len() >= MAX_TOLD {
            self.told.clear();
        }
        let name = name.chars().take(MAX_NAME_LENGTH).collect();
        self.told.insert((of, name, version)).then_some(refusal)
    }
}

/// Whether a node can have this address, so that messages to it lead somewhere else than here.
pub(super) fn is_of_a_node(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// The bytes that a node has on its disks, as `LOAD-INFORMATION` gives them: a number that both
/// Java and Rust can read.
pub(super) fn parse_load(value: &str) -> Option<f64> {
    let is_plain = value.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    value.parse().ok().filter(|_| is_plain)
}
