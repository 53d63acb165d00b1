//! Effects of defects on messages: those of reads and writes, those of operations on the ring, and
//! what nodes tell of removals.

use crate::cluster::schema;
use crate::defects::Defect;
use alexandra::base::context::RequestContext;
use alexandra::gossip::{GossipMessage, MessageKind, REMOVED_STATE};
use alexandra::model::deletion::Deletion;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::register::{Register, Vote};
use alexandra::model::schema::{ColumnFamilySchema, FamilyId};
use alexandra::model::version::RowVersion;
use alexandra::net::Verb;
use alexandra::net::bodies::{self, PageReply, RangeReply, ReadReply};
use alexandra::net::extensions::CALL;
use alexandra::net::message::{Message, MessageId};
use alexandra::ring::RowRange;
use alexandra::storage::Database;
use alexandra::storage::system;
use alexandra::storage::system::registers::{PAXOS, SavedRegister};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Changes messages on their way.
#[derive(Debug, Default)]
pub(crate) struct Tampering {
    /// Of which family rows were asked for, by who asked whom by which number.
    asked: BTreeMap<(IpAddr, IpAddr, MessageId), (Verb, FamilyId)>,
    /// Nodes that have no place yet.
    joining: BTreeSet<IpAddr>,
    /// Messages that a defect was to change now and then.
    chances: u64,
}

/// Message that arrives in the place of another.
#[derive(Debug)]
pub(crate) struct Tampered {
    pub(crate) now: Vec<u8>,
    /// Arrives a little later.
    pub(crate) later: Option<Vec<u8>>,
}

impl Tampering {
    pub(crate) fn set_joining(&mut self, node: IpAddr, is_joining: bool) {
        if is_joining {
            self.joining.insert(node);
        } else {
            self.joining.remove(&node);
        }
    }

    /// The message as it is to arrive; none if it stays as it is.
    pub(crate) fn change(&mut self, defect: Defect, to: IpAddr, bytes: &[u8]) -> Option<Tampered> {
        let mut message = Message::decode(bytes).ok()?;
        if defect == Defect::RemovalsForgotten && is_request(message.verb) {
            message.from = alias(message.from);
            return Some(Tampered { now: message.encode().ok()?, later: None });
        }
        if matches!(message.verb, Verb::Mutation | Verb::ReadRepair) {
            let (now, later) = self.change_write(defect, to, message.body)?;
            let with_body = |body: &[u8]| Message { body, ..message.clone() }.encode().ok();
            let later = later.and_then(|body| with_body(&body));
            return Some(Tampered { now: with_body(&now)?, later });
        }
        if defect == Defect::ProposalsUnfinished && message.verb == Verb::ReadResponse {
            // Answers of other kinds do not read as votes.
            let body = without_accepted(message.body)?;
            message.body = &body;
            return Some(Tampered { now: message.encode().ok()?, later: None });
        }
        let body = match (message.verb, message.header(CALL)) {
            (Verb::Read | Verb::RangeSlice, _) | (Verb::StreamRequest, Some(b"page")) => {
                let is_super = message.body.windows(6).any(|it| it == b"Groups");
                let family = FamilyId(u32::from(is_super));
                self.asked.insert((message.from, to, message.id), (message.verb, family));
                return None;
            }
            (Verb::ReadResponse, None) => {
                let asked = (to, message.from, message.id.clone());
                let (verb, family) = self.asked.remove(&asked)?;
                self.change_answer(defect, verb, schema().family(family), message.body)?
            }
            (verb, call) => change_other(defect, verb, call, message.body)?,
        };
        message.body = &body;
        Some(Tampered { now: message.encode().ok()?, later: None })
    }

    /// The body that arrives now in the place of a write, and the one that arrives later. A write
    /// of nothing is acknowledged as any other.
    fn change_write(
        &mut self,
        defect: Defect,
        to: IpAddr,
        body: &[u8],
    ) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mutation = bodies::decode_mutation(body, &schema(), &RequestContext::default()).ok()?;
        let nothing = || encode(&with_cells(&mutation, 0..0));
        match defect {
            Defect::AcknowledgedBeforeWritten => Some((nothing(), Some(body.to_vec()))),
            Defect::WritesForgotten if self.one_in(20) => Some((nothing(), None)),
            Defect::PendingForgotten if self.joining.contains(&to) => Some((nothing(), None)),
            Defect::RowsTorn => {
                let cells = mutation.families.first()?.cells.len();
                (cells > 1).then(|| {
                    let others = encode(&with_cells(&mutation, 1..cells));
                    (encode(&with_cells(&mutation, 0..1)), Some(others))
                })
            }
            _ => None,
        }
    }

    fn change_answer(
        &mut self,
        defect: Defect,
        verb: Verb,
        family: &ColumnFamilySchema,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        match (defect, verb) {
            (Defect::PiecesIncomplete, Verb::StreamRequest) => {
                let mut page = PageReply::decode(body, family).ok()?;
                if !page.rows.rows.is_empty() {
                    page.rows.rows.remove(0);
                }
                page.encode(family).ok()
            }
            (Defect::PagesCutShort, Verb::RangeSlice) => {
                let mut page = RangeReply::decode(body, family).ok()?;
                page.rows.truncate((page.rows.len() / 2).max(1));
                page.encode(family).ok()
            }
            (Defect::DeletionsUntold, Verb::Read) => {
                let ReadReply::Data { key, mut version } = ReadReply::decode(body, family).ok()?
                else {
                    return None;
                };
                version.cells.retain(|cell| cell.is_live());
                version.deletion = Deletion::NONE;
                ReadReply::Data { key, version }.encode(family).ok()
            }
            (Defect::ReadsOfNothing, Verb::Read) if self.one_in(10) => {
                let version = RowVersion::default();
                let reply = match ReadReply::decode(body, family).ok()? {
                    ReadReply::Data { key, .. } => ReadReply::Data { key, version },
                    ReadReply::Digest(_) => ReadReply::Digest(version.full_digest(family)),
                };
                reply.encode(family).ok()
            }
            _ => None,
        }
    }

    /// True for one call of so many.
    fn one_in(&mut self, many: u64) -> bool {
        self.chances += 1;
        self.chances.is_multiple_of(many)
    }
}

/// The body that arrives in the place of one of an operation on the ring, or of gossip.
fn change_other(defect: Defect, verb: Verb, call: Option<&[u8]>, body: &[u8]) -> Option<Vec<u8>> {
    match (defect, verb, call) {
        (Defect::HeirsIdle, Verb::StreamRequest, Some(b"start")) => without_ranges(body),
        (Defect::HearingSkipped, Verb::StreamRequest, Some(b"has-heard")) => {
            // The generation, and version 0.
            Some([body.get(..4)?, &[0; 4]].concat())
        }
        (Defect::RemovalsForgotten, Verb::GossipDigestAck, None) => {
            without_removals(MessageKind::Ack, body)
        }
        (Defect::RemovalsForgotten, Verb::GossipDigestAck2, None) => {
            without_removals(MessageKind::Ack2, body)
        }
        _ => None,
    }
}

/// The mutation with some cells of its first family only.
fn with_cells(mutation: &RowMutation, cells: std::ops::Range<usize>) -> RowMutation {
    let schema = schema();
    let mut builder = MutationBuilder::new(&schema, &mutation.keyspace(), mutation.key.as_bytes());
    let is_first = cells.start == 0;
    if let Some(family) = mutation.families.first().filter(|_| !cells.is_empty()) {
        let row = builder.family(family.family);
        row.delete_row(if is_first { family.deletion } else { Deletion::NONE });
        for cell in &family.cells[cells] {
            builder.cell(cell);
        }
    }
    builder.finish()
}

fn encode(mutation: &RowMutation) -> Vec<u8> {
    bodies::encode_mutation(mutation, &schema()).expect("it came in a message")
}

fn is_request(verb: Verb) -> bool {
    matches!(verb, Verb::Mutation | Verb::ReadRepair | Verb::Read | Verb::RangeSlice)
}

/// Another address of a node, which nobody has removed.
fn alias(node: IpAddr) -> IpAddr {
    in_network(1, node)
}

/// The node that has an address, which may be an alias.
pub(crate) fn owner(address: IpAddr) -> IpAddr {
    in_network(0, address)
}

fn in_network(network: u8, address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, _, c, d] = address.octets();
            IpAddr::from([a, network, c, d])
        }
        IpAddr::V6(_) => address,
    }
}

/// A gossip message that does not tell of removed nodes.
fn without_removals(kind: MessageKind, body: &[u8]) -> Option<Vec<u8>> {
    let mut message = GossipMessage::decode(kind, body).ok()?;
    let (GossipMessage::Ack { states, .. } | GossipMessage::Ack2 { states }) = &mut message else {
        return None;
    };
    for (_, state) in states {
        state.states.remove(REMOVED_STATE);
    }
    message.encode().ok()
}

/// A promise that tells of nothing accepted.
fn without_accepted(body: &[u8]) -> Option<Vec<u8>> {
    match bodies::decode_vote(body).ok()? {
        Vote::Promised { settled, accepted: Some(_) } => {
            Some(bodies::encode_vote(&Vote::Promised { settled, accepted: None }))
        }
        _ => None,
    }
}

/// Makes a node forget all that it has promised and accepted.
pub(crate) fn forget_registers(storage: &Database) {
    let family = storage.schema().family_id(system::KEYSPACE, PAXOS).expect("all nodes have it");
    let piece = storage.family(family).read_piece(&RowRange::all(), None, usize::MAX);
    for (name, _) in piece.expect("the disk is sound").rows {
        let mut saved = SavedRegister::read(storage, &name).expect("the disk is sound");
        saved.state = Register::default();
        saved.write(storage, &name).expect("the disk is sound");
    }
}

/// A job that collects no ranges; none if it is another job.
fn without_ranges(body: &[u8]) -> Option<Vec<u8>> {
    let (head, _) = body.split_at_checked(9)?;
    // The number of the job, and which task it is.
    (head[8] == 0).then(|| [head, &[0; 4]].concat())
}
