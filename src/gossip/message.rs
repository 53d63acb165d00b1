//! The three messages of gossip and their bytes.
//!
//! ```text
//! DIGEST   ADDR endpoint, i32 generation, i32 greatest version
//! DIGESTS  i32 count, DIGEST for each
//! STATE    i32 generation, i32 heartbeat, i32 count, for each: UTF name, UTF value, i32 version
//! STATES   i32 count, for each: ADDR endpoint, STATE
//!
//! SYN      UTF cluster name, DIGESTS
//! ACK      DIGESTS wanted, u8 1, STATES
//! ACK2     STATES
//! ```
//!
//! Up to 0.6.3 a node ends a message at about 1428 bytes, between two elements, and leaves the
//! count as it was. After cut DIGESTS an ACK has u8 0 and no STATES.

use super::endpoint_state::{EndpointState, VersionedValue};
use crate::base::bytes::{ByteReader, Malformed};
use crate::base::java::{JavaReader, JavaWriter, TooLong};
use std::net::IpAddr;

/// Most states of an endpoint in a message. No node sends as many. States above
/// [`super::admission::MAX_STATES`] are left out one by one.
const MOST_STATES: usize = 1024;

/// Most endpoints in a message. No node knows as many, though one of 0.6 lists itself twice.
const MOST_ENDPOINTS: usize = 16 * 1024;

/// The known part of an endpoint's state: the sender has it, or requests what is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// The endpoint.
    pub endpoint: IpAddr,
    /// The known generation.
    pub generation: i32,
    /// The greatest known version of this generation.
    pub max_version: i32,
}

/// A message between two gossipers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GossipMessage {
    /// The sender's knowledge.
    Syn {
        /// The cluster of the sender. Nodes of others do not answer.
        cluster_name: String,
        /// A digest of each endpoint. A node of 0.6 lists itself twice.
        digests: Vec<Digest>,
    },
    /// The answer to a SYN.
    Ack {
        /// Requests for newer states.
        wanted: Vec<Digest>,
        /// States that are new to the sender of the SYN.
        states: Vec<(IpAddr, EndpointState)>,
    },
    /// The answer to an ACK.
    Ack2 {
        /// The requested states.
        states: Vec<(IpAddr, EndpointState)>,
    },
}

/// Kind of a message, which its verb says and not its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// Verb 14.
    Syn,
    /// Verb 15.
    Ack,
    /// Verb 16.
    Ack2,
}

impl GossipMessage {
    /// The kind of this message.
    pub fn kind(&self) -> MessageKind {
        match self {
            Self::Syn { .. } => MessageKind::Syn,
            Self::Ack { .. } => MessageKind::Ack,
            Self::Ack2 { .. } => MessageKind::Ack2,
        }
    }

    /// The body. Only a cluster name can be too long: a gossiper keeps no states that are.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut out = Vec::new();
        match self {
            Self::Syn { cluster_name, digests } => {
                out.put_utf(cluster_name.as_bytes())?;
                put_digests(&mut out, digests);
            }
            Self::Ack { wanted, states } => {
                put_digests(&mut out, wanted);
                out.push(1);
                put_states(&mut out, states)?;
            }
            Self::Ack2 { states } => put_states(&mut out, states)?,
        }
        Ok(out)
    }

    /// Reads a body. Further bytes are ignored: 0.6 pads its messages.
    pub fn decode(kind: MessageKind, body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(body);
        Ok(match kind {
            MessageKind::Syn => {
                let cluster_name = reader.utf()?.into_owned();
                Self::Syn { cluster_name, digests: digests(&mut reader, &[])? }
            }
            MessageKind::Ack => {
                let wanted = digests(&mut reader, &[0])?;
                let states = if reader.bool()? { states(&mut reader)? } else { Vec::new() };
                Self::Ack { wanted, states }
            }
            MessageKind::Ack2 => Self::Ack2 { states: states(&mut reader)? },
        })
    }
}

fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    put_i32(out, i32::try_from(count).expect("a gossiper knows a bounded number of endpoints"));
}

fn put_digests(out: &mut Vec<u8>, digests: &[Digest]) {
    put_count(out, digests.len());
    for digest in digests {
        out.put_address(digest.endpoint);
        put_i32(out, digest.generation);
        put_i32(out, digest.max_version);
    }
}

fn put_states(out: &mut Vec<u8>, states: &[(IpAddr, EndpointState)]) -> Result<(), TooLong> {
    put_count(out, states.len());
    for (endpoint, state) in states {
        out.put_address(*endpoint);
        put_i32(out, state.generation);
        put_i32(out, state.heartbeat);
        put_count(out, state.states.len());
        for (name, state) in &state.states {
            out.put_utf(name.as_bytes())?;
            out.put_utf(state.value.as_bytes())?;
            put_i32(out, state.version);
        }
    }
    Ok(())
}

/// Reads a list, and whether all of it is there. If it is cut, the body ends with these bytes.
fn list<'a, T>(
    reader: &mut ByteReader<'a>,
    most: usize,
    cut: &[u8],
    element: impl Fn(&mut ByteReader<'a>) -> Result<T, Malformed>,
) -> Result<(Vec<T>, bool), Malformed> {
    let count = reader.count_at_most(0, most)?;
    let mut list = Vec::new();
    while list.len() < count && reader.rest() != cut {
        list.push(element(reader)?);
    }
    let is_whole = list.len() == count;
    Ok((list, is_whole))
}

fn digests(reader: &mut ByteReader<'_>, cut: &[u8]) -> Result<Vec<Digest>, Malformed> {
    Ok(list(reader, MOST_ENDPOINTS, cut, digest)?.0)
}

fn digest(reader: &mut ByteReader<'_>) -> Result<Digest, Malformed> {
    let endpoint = reader.address()?;
    Ok(Digest { endpoint, generation: reader.i32()?, max_version: reader.i32()? })
}

fn states(reader: &mut ByteReader<'_>) -> Result<Vec<(IpAddr, EndpointState)>, Malformed> {
    let endpoint = |it: &mut ByteReader<'_>| Ok((it.address()?, state(it)?));
    let (states, _) = list(reader, MOST_ENDPOINTS, &[], endpoint)?;
    Ok(states.into_iter().filter_map(|(endpoint, state)| Some((endpoint, state?))).collect())
}

/// Reads a state. Of a name that comes twice the last value counts, as in 0.6. `None` for one that
/// is cut: with its heartbeat alone the missing values would count as known.
fn state(reader: &mut ByteReader<'_>) -> Result<Option<EndpointState>, Malformed> {
    let mut state = EndpointState::new(reader.i32()?);
    state.heartbeat = reader.i32()?;
    let (values, is_whole) = list(reader, MOST_STATES, &[], |it| {
        let (name, value) = (it.utf()?.into_owned(), it.utf()?.into_owned());
        Ok((name, VersionedValue { value, version: it.i32()? }))
    })?;
    state.states.extend(values);
    Ok(is_whole.then_some(state))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    const A: [u8; 4] = [127, 0, 10, 1];
    const B: [u8; 4] = [127, 0, 10, 2];
    const A_GENERATION: i32 = 0x6aff_c26e;
    const B_GENERATION: i32 = 0x6aff_c276;

    /// Bodies that nodes of 0.6.13 sent to each other, with what stands in them.
    fn recorded() -> Vec<(&'static str, GossipMessage)> {
        let digest = |endpoint: [u8; 4], generation, max_version| Digest {
            endpoint: endpoint.into(),
            generation,
            max_version,
        };
        let state = |heartbeat: (i32, i32), states: &[(&str, &str, i32)]| EndpointState {
            generation: heartbeat.0,
            heartbeat: heartbeat.1,
            states: states
                .iter()
                .map(|&(name, value, version)| {
                    (name.to_owned(), VersionedValue { value: value.to_owned(), version })
                })
                .collect(),
        };
        let normal = "NORMAL,85070591730234615865843651857942052864";
        vec![
            (
                "000f496e7465726f7020436c7573746572 00000002
                 047f000a02 6affc276 00000002 047f000a02 6affc276 00000002",
                GossipMessage::Syn {
                    cluster_name: "Interop Cluster".to_owned(),
                    digests: vec![digest(B, B_GENERATION, 2); 2],
                },
            ),
            (
                "00000002 047f000a02 6affc276 00000000 047f000a02 6affc276 00000000 01 00000000",
                GossipMessage::Ack {
                    wanted: vec![digest(B, B_GENERATION, 0); 2],
                    states: Vec::new(),
                },
            ),
            (
                "00000001 047f000a02 6affc276 00000002 00000001 00044d4f5645
                 002d4e4f524d414c2c3835303730353931373330323334363135383635383433
                 363531383537393432303532383634 00000001",
                GossipMessage::Ack2 {
                    states: vec![(B.into(), state((B_GENERATION, 2), &[("MOVE", normal, 1)]))],
                },
            ),
            (
                "00000002 047f000a01 6affc26e 0000000c 047f000a01 6affc26e 0000000c 01
                 00000001 047f000a02 6affc276 00000003 00000001
                 00104c4f41442d494e464f524d4154494f4e 00053439382e30 00000004",
                GossipMessage::Ack {
                    wanted: vec![digest(A, A_GENERATION, 12); 2],
                    states: vec![(
                        B.into(),
                        state((B_GENERATION, 3), &[("LOAD-INFORMATION", "498.0", 4)]),
                    )],
                },
            ),
        ]
    }

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn recorded_messages_are_read_and_written_alike() {
        for (hex, message) in recorded() {
            let bytes = unhex(hex);
            assert_eq!(message.encode().unwrap(), bytes);
            let padded: Vec<u8> = bytes.iter().copied().chain([0; 5]).collect();
            assert_eq!(GossipMessage::decode(message.kind(), &padded), Ok(message.clone()));
            let is_read =
                |cut: &usize| GossipMessage::decode(message.kind(), &bytes[..*cut]).is_ok();
            let cuts: Vec<usize> = (0..bytes.len()).filter(is_read).collect();
            let between_elements: &[usize] = match message.kind() {
                MessageKind::Syn => &[21, 34],
                MessageKind::Ack if bytes.len() == 35 => &[],
                MessageKind::Ack => &[35, 52],
                MessageKind::Ack2 => &[4, 21],
            };
            assert_eq!(cuts, between_elements, "{message:?}");
        }
    }

    /// Up to 0.6.3 the counts are those of the whole message.
    #[test]
    fn a_message_may_end_between_two_elements() {
        let digest =
            |last| Digest { endpoint: [10, 0, 0, last].into(), generation: 1, max_version: 2 };
        let ack = GossipMessage::Ack { wanted: vec![digest(1), digest(2)], states: Vec::new() };
        let cut = [&ack.encode().unwrap()[..4 + 13], &[0]].concat();
        let read = GossipMessage::Ack { wanted: vec![digest(1)], states: Vec::new() };
        assert_eq!(GossipMessage::decode(MessageKind::Ack, &cut), Ok(read));
        let mut state = EndpointState::new(1);
        let whole = ([10, 0, 0, 1].into(), state.clone());
        for name in ["A", "B"] {
            let value = VersionedValue { value: "v".to_owned(), version: 3 };
            state.states.insert(name.to_owned(), value);
        }
        let ack2 =
            GossipMessage::Ack2 { states: vec![whole.clone(), ([10, 0, 0, 2].into(), state)] };
        let bytes = ack2.encode().unwrap();
        let cut = &bytes[..bytes.len() - 10];
        let read = GossipMessage::Ack2 { states: vec![whole] };
        assert_eq!(GossipMessage::decode(MessageKind::Ack2, cut), Ok(read));
        assert!(GossipMessage::decode(MessageKind::Ack2, &cut[..cut.len() - 1]).is_err());
    }

    #[test]
    fn a_count_that_cannot_be_is_malformed() {
        let body = unhex("7fffffff 047f000a02 6affc276 00000002");
        assert_eq!(GossipMessage::decode(MessageKind::Ack2, &body), Err(Malformed(0)));
        assert_eq!(GossipMessage::decode(MessageKind::Ack, &[0xff; 30]), Err(Malformed(0)));
    }

    #[test]
    fn no_message_has_more_endpoints_than_a_cluster() {
        let syn = |count| {
            let digest = Digest { endpoint: A.into(), generation: 1, max_version: 1 };
            let cluster_name = "Test Cluster".to_owned();
            let syn = GossipMessage::Syn { cluster_name, digests: vec![digest; count] };
            GossipMessage::decode(MessageKind::Syn, &syn.encode().unwrap()).is_ok()
        };
        assert!(syn(MOST_ENDPOINTS) && !syn(MOST_ENDPOINTS + 1));
        let ack2 = |count| {
            let states = vec![(A.into(), EndpointState::new(1)); count];
            let ack2 = GossipMessage::Ack2 { states }.encode().unwrap();
            GossipMessage::decode(MessageKind::Ack2, &ack2).is_ok()
        };
        assert!(ack2(MOST_ENDPOINTS) && !ack2(MOST_ENDPOINTS + 1));
    }

    fn arb_address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (0..5u8).prop_map(|last| IpAddr::from([10, 0, 0, last])),
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(IpAddr::from),
        ]
    }

    fn arb_digests() -> impl Strategy<Value = Vec<Digest>> {
        let digest = (arb_address(), any::<i32>(), any::<i32>()).prop_map(
            |(endpoint, generation, max_version)| Digest { endpoint, generation, max_version },
        );
        vec(digest, 0..4)
    }

    fn arb_states() -> impl Strategy<Value = Vec<(IpAddr, EndpointState)>> {
        let value = (any::<String>(), any::<i32>())
            .prop_map(|(value, version)| VersionedValue { value, version });
        let state = (any::<i32>(), any::<i32>(), btree_map(any::<String>(), value, 0..3)).prop_map(
            |(generation, heartbeat, states)| EndpointState { generation, heartbeat, states },
        );
        vec((arb_address(), state), 0..3)
    }

    pub(in crate::gossip) fn arb_message() -> impl Strategy<Value = GossipMessage> {
        prop_oneof![
            (prop_oneof![Just("Test Cluster".to_owned()), any::<String>()], arb_digests())
                .prop_map(|(cluster_name, digests)| GossipMessage::Syn { cluster_name, digests }),
            (arb_digests(), arb_states())
                .prop_map(|(wanted, states)| GossipMessage::Ack { wanted, states }),
            arb_states().prop_map(|states| GossipMessage::Ack2 { states }),
        ]
    }

    proptest! {
        #[test]
        fn messages_are_read_back(message in arb_message()) {
            let bytes = message.encode().unwrap();
            prop_assert_eq!(GossipMessage::decode(message.kind(), &bytes), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, message in arb_message(), at: usize) {
            let mut broken = message.encode().unwrap();
            let length = broken.len();
            if let Some(byte) = broken.get_mut(at % length) {
                *byte ^= 0x81;
            }
            for kind in [MessageKind::Syn, MessageKind::Ack, MessageKind::Ack2] {
                let _ = GossipMessage::decode(kind, &bytes);
                let _ = GossipMessage::decode(kind, &broken);
            }
        }
    }
}
