//! Checks of what peers pass on.

use super::endpoint_state::{EndpointState, VersionedValue};
use super::place_states::{BadMove, Move};
use super::{LOAD_STATE, MOVE_STATE};
use crate::base::utc::UtcTime;
use crate::config::settings::MAX_TOKEN_LENGTH;
use crate::ring::Partitioner;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Most known endpoints with a place, and most forgotten ones that are remembered. Clusters of 0.6
/// had a few hundred.
pub(super) const MAX_ENDPOINTS: usize = 1024;

/// Most known endpoints without a place. Unknown ones get the ring as well.
pub(super) const MAX_STRANGERS: usize = 512;

/// Most states of an endpoint; one of 0.6 has two.
pub(super) const MAX_STATES: usize = 16;

/// Longest name of a state, in bytes.
pub(super) const MAX_NAME_LENGTH: usize = 128;

/// Longest value of a state, in bytes. Tokens of order-preserving partitioners are keys.
pub(super) const MAX_VALUE_LENGTH: usize = 4096;

const _: () = assert!(2 * MAX_TOKEN_LENGTH + "NORMAL,,remove,".len() <= MAX_VALUE_LENGTH);

/// Most refusals that are remembered, so that each is reported once.
const MAX_REPORTED: usize = 1024;

/// Longest text of another node in a log line, in characters.
const MAX_SHOWN: usize = 200;

/// Reason why a part of a message is refused.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Refusal {
    /// The table of endpoints is full.
    #[display(
        "{} endpoints are known already, and no more are taken",
        MAX_ENDPOINTS + MAX_STRANGERS
    )]
    TooManyEndpoints,
    /// The table of endpoints without a place is full.
    #[display(
        "{MAX_STRANGERS} endpoints without a place on the ring are known already, and no more are \
         taken"
    )]
    TooManyStrangers,
    /// No node can have this address.
    #[display("this is no address of a node")]
    Address,
    /// No node can have started at this generation yet.
    #[display(
        "its generation {_0} is that of a start on {}. Somebody has made that up, or the clock \
         there or here is wrong",
        UtcTime::of_secs(i64::from(*_0))
    )]
    Generation(i32),
    /// The endpoint has too many states; the value is the name of the surplus one.
    #[display("{} is more than the {MAX_STATES} states that are taken", Shown(_0))]
    TooManyStates(String),
    /// Name or value of a state is too long; the value is its name.
    #[display("the state {} is too long", Shown(_0))]
    TooLong(String),
    /// A node of 0.6 fails on this value of `MOVE`.
    #[display("{_1} in \"{}\"", Shown(_0))]
    Move(String, BadMove),
    /// A value of `LOAD-INFORMATION` that is not a number; a node of 0.6 fails on it.
    #[display("the load \"{}\" is no number", Shown(_0))]
    Load(String),
}

/// Checks news, and reports each refusal once.
#[derive(Debug)]
pub(super) struct Admission {
    partitioner: Partitioner,
    /// Endpoint, name of the state and its version; without the latter two for endpoints.
    reported: BTreeSet<(IpAddr, String, i32)>,
}

impl Admission {
    pub(super) fn new(partitioner: Partitioner) -> Self {
        Self { partitioner, reported: BTreeSet::new() }
    }

    /// Refuses an address that no node can have.
    pub(super) fn address(&mut self, endpoint: IpAddr) -> Result<(), Option<Refusal>> {
        if is_of_a_node(endpoint) {
            return Ok(());
        }
        Err(self.once(endpoint, "", 0, Refusal::Address))
    }

    /// Refuses a generation that no node can have yet. Reported once for each endpoint.
    pub(super) fn generation(&mut self, endpoint: IpAddr, generation: i32) -> Option<Refusal> {
        self.once(endpoint, "", 2, Refusal::Generation(generation))
    }

    /// Refuses an endpoint for lack of room. Reported once for all endpoints.
    pub(super) fn no_room(&mut self, refusal: Refusal) -> Option<Refusal> {
        let anybody = IpAddr::from([0; 4]);
        let version = if refusal == Refusal::TooManyStrangers { 3 } else { 1 };
        self.once(anybody, "", version, refusal)
    }

    /// Removes states that must not be stored or passed on. `known` is the state that the news
    /// are merged with. Returns the refusals to report.
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
            // Each becomes a log line: a few are enough.
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
        let value = || state.value.clone();
        match name {
            MOVE_STATE => {
                let reason = Move::parse(self.partitioner, &state.value).err()?;
                Some(Refusal::Move(value(), reason))
            }
            LOAD_STATE if parse_load(&state.value).is_none() => Some(Refusal::Load(value())),
            _ => None,
        }
    }

    /// The refusal, unless it was reported before. A full table is cleared: a repeated report is
    /// better than none.
    fn once(&mut self, of: IpAddr, name: &str, version: i32, refusal: Refusal) -> Option<Refusal> {
        if self.reported.len() >= MAX_REPORTED {
            self.reported.clear();
        }
        let name = name.chars().take(MAX_NAME_LENGTH).collect();
        self.reported.insert((of, name, version)).then_some(refusal)
    }
}

/// Whether a node can have this address: messages to it must not come back here.
pub(super) fn is_of_a_node(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// Parses a value of `LOAD-INFORMATION`, the bytes on a node's disks: a number that both Java and
/// Rust can read.
pub(super) fn parse_load(value: &str) -> Option<f64> {
    let is_plain = value.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    value.parse().ok().filter(|_| is_plain)
}

/// A text of another node as log lines show it: without line breaks, and not too long.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(MAX_SHOWN) {
            let shown = if character.is_control() { '?' } else { character };
            write!(f, "{shown}")?;
        }
        if characters.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_lines_are_not_broken() {
        assert_eq!(Shown(&"x".repeat(300)).to_string().len(), MAX_SHOWN + 3);
        assert_eq!(Shown("Other\nCluster").to_string(), "Other?Cluster");
    }
}
