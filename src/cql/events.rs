//! Events: what clients have registered for, and the frames that tell them.

use super::frame::{self, opcode};
use super::wire::{Few, Malformed, put_inet, put_string};
use crate::base::lock::{Mutex, rank};
use crate::schema::{Definitions, KeyspaceDefinition, TableDefinition};
use crate::service::Service;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Most events that wait for a client to read. One that has as many waiting is cut off.
const MOST_WAITING: usize = 256;

/// The stream of events.
const STREAM: i16 = -1;

/// Kinds of events by name. The position of a kind is its bit.
const KINDS: [&str; 3] = ["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"];

/// A set of kinds of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EventKinds(u8);

impl EventKinds {
    const TOPOLOGY: Self = Self(1);
    const STATUS: Self = Self(2);
    const SCHEMA: Self = Self(4);

    /// The kinds with these names.
    pub(super) fn named(names: &Few<&str>) -> Result<Self, Malformed> {
        names.iter().try_fold(Self::default(), |kinds, name| {
            let found = KINDS.iter().position(|kind| kind == name);
            let unknown = || Malformed::new(format!("Unknown type of events '{name}'"));
            found.map(|bit| Self(kinds.0 | 1 << bit)).ok_or_else(unknown)
        })
    }
}

/// A change of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaChange {
    /// Fate of the object.
    pub change: Change,
    /// Its keyspace.
    pub keyspace: String,
    /// A table or a type; `None` for the keyspace itself.
    pub target: Option<SchemaTarget>,
}

impl fmt::Display for SchemaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { change, keyspace, target } = self;
        let verb = match change {
            Change::Created => "CREATE",
            Change::Updated => "ALTER",
            Change::Dropped => "DROP",
        };
        match target {
            None => write!(f, "{verb} KEYSPACE {keyspace}"),
            Some(SchemaTarget::Table(name)) => write!(f, "{verb} TABLE {keyspace}.{name}"),
            Some(SchemaTarget::Type(name)) => write!(f, "{verb} TYPE {keyspace}.{name}"),
        }
    }
}

/// Fate of an object of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Created,
    /// It is another than before.
    Updated,
    /// It is gone.
    Dropped,
}

/// An object in a keyspace, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaTarget {
    /// A table.
    Table(String),
    /// A user type.
    Type(String),
}

impl SchemaChange {
    /// Writes it as RESULT and EVENT have it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let change = match self.change {
            Change::Created => "CREATED",
            Change::Updated => "UPDATED",
            Change::Dropped => "DROPPED",
        };
        let (kind, name) = match &self.target {
            None => ("KEYSPACE", None),
            Some(SchemaTarget::Table(name)) => ("TABLE", Some(name)),
            Some(SchemaTarget::Type(name)) => ("TYPE", Some(name)),
        };
        for text in [change, kind, &self.keyspace].into_iter().chain(name.map(String::as_str)) {
            put_string(text, out);
        }
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A node has joined the ring.
    NewNode(SocketAddr),
    /// A node has left the ring.
    RemovedNode(SocketAddr),
    /// A node is alive again.
    Up(SocketAddr),
    /// A node seems dead.
    Down(SocketAddr),
    /// The schema has changed.
    Schema(SchemaChange),
}

impl Event {
    fn kind(&self) -> EventKinds {
        match self {
            Self::NewNode(_) | Self::RemovedNode(_) => EventKinds::TOPOLOGY,
            Self::Up(_) | Self::Down(_) => EventKinds::STATUS,
            Self::Schema(_) => EventKinds::SCHEMA,
        }
    }

    /// The frame of this version that tells it.
    fn frame(&self, version: u8) -> Vec<u8> {
        let mut out = Vec::new();
        frame::begin(version, STREAM, opcode::EVENT, &mut out);
        let kind = self.kind().0.trailing_zeros() as usize;
        put_string(KINDS.get(kind).unwrap_or(&""), &mut out);
        let (change, node) = match self {
            Self::NewNode(node) => ("NEW_NODE", node),
            Self::RemovedNode(node) => ("REMOVED_NODE", node),
            Self::Up(node) => ("UP", node),
            Self::Down(node) => ("DOWN", node),
            Self::Schema(change) => {
                change.encode(&mut out);
                frame::end(0, false, &mut out);
                return out;
            }
        };
        put_string(change, &mut out);
        put_inet(*node, &mut out);
        frame::end(0, false, &mut out);
        out
    }
}

/// Tells of nodes that come, go, or change their state, as long as the service is there. All
/// nodes serve CQL on this port.
pub async fn follow_ring(service: Weak<Service>, events: Arc<Events>, port: u16) {
    let Some(mut changes) = service.upgrade().map(|service| service.ring_changes()) else { return };
    let mut known = nodes(&service).unwrap_or_default();
    while changes.changed().await.is_ok() {
        let Some(found) = nodes(&service) else { return };
        for (node, event) in differences(&known, &found) {
            events.tell(&event(SocketAddr::new(node, port)));
        }
        known = found;
    }
}

/// Tells of changes of the schema, as long as the service is there.
pub async fn follow_schema(service: Weak<Service>, events: Arc<Events>) {
    let changes = service.upgrade().map(|service| service.register().changes());
    drop(service);
    let Some(mut changes) = changes else { return };
    let mut known = Arc::clone(&changes.borrow_and_update());
    while changes.changed().await.is_ok() {
        let found = Arc::clone(&changes.borrow_and_update());
        for change in schema_differences(&known, &found) {
            events.tell(&Event::Schema(change));
        }
        known = found;
    }
}

/// The changes that lead from the known definitions to those that are found. What is in a keyspace
/// goes before it, and comes after it.
fn schema_differences(known: &Definitions, found: &Definitions) -> Vec<SchemaChange> {
    let none = KeyspaceDefinition::default();
    let names: BTreeSet<&String> = known.keyspaces.keys().chain(found.keyspaces.keys()).collect();
    let mut changes = Vec::new();
    for keyspace in names {
        let [before, after] = [known, found].map(|it| it.keyspaces.get(keyspace).unwrap_or(&none));
        let told = |change, target| SchemaChange { change, keyspace: keyspace.clone(), target };
        let own = |it: &KeyspaceDefinition| Some((it.replication.clone()?, it.durable_writes));
        let of_keyspace = change_of(own(before).as_ref(), own(after).as_ref(), PartialEq::eq);
        let of_keyspace = of_keyspace.map(|change| told(change, None));
        let types = named_changes(&before.types, &after.types, Arc::eq);
        let types =
            types.into_iter().map(|(change, name)| told(change, Some(SchemaTarget::Type(name))));
        let tables = named_changes(&before.tables, &after.tables, is_same_table);
        let tables =
            tables.into_iter().map(|(change, name)| told(change, Some(SchemaTarget::Table(name))));
        let mut all: Vec<SchemaChange> =
            of_keyspace.into_iter().chain(types).chain(tables).collect();
        if all.first().is_some_and(|it| it.target.is_none() && it.change == Change::Dropped) {
            all.reverse();
        }
        changes.extend(all);
    }
    changes
}

/// Whether clients know two definitions as the same. They do not hear of TRUNCATE.
fn is_same_table(before: &Arc<TableDefinition>, after: &Arc<TableDefinition>) -> bool {
    **before == TableDefinition { rows: before.rows, ..TableDefinition::clone(after) }
}

fn named_changes<T>(
    before: &BTreeMap<String, T>,
    after: &BTreeMap<String, T>,
    is_same: fn(&T, &T) -> bool,
) -> Vec<(Change, String)> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |name: &String| {
        Some((change_of(before.get(name), after.get(name), is_same)?, name.clone()))
    };
    names.into_iter().filter_map(change).collect()
}

fn change_of<T>(
    before: Option<&T>,
    after: Option<&T>,
    is_same: fn(&T, &T) -> bool,
) -> Option<Change> {
    match (before, after) {
        (None, Some(_)) => Some(Change::Created),
        (Some(_), None) => Some(Change::Dropped),
        (Some(before), Some(after)) if !is_same(before, after) => Some(Change::Updated),
        _ => None,
    }
}

/// An event of a node, for the address where it serves CQL.
type NodeEvent = (IpAddr, fn(SocketAddr) -> Event);

/// The nodes of the ring, and whether they seem alive.
type Nodes = BTreeMap<IpAddr, bool>;

fn nodes(service: &Weak<Service>) -> Option<Nodes> {
    let members = service.upgrade()?.members();
    Some(members.into_iter().map(|(_, node, is_alive)| (node, is_alive)).collect())
}

/// The events that lead from the known nodes to those that are found.
fn differences(known: &Nodes, found: &Nodes) -> Vec<NodeEvent> {
    let mut events: Vec<NodeEvent> = Vec::new();
    for (node, is_alive) in found {
        let before = known.get(node);
        if before.is_none() {
            events.push((*node, Event::NewNode));
        }
        match (before.is_some_and(|was_alive| *was_alive), *is_alive) {
            (false, true) => events.push((*node, Event::Up)),
            (true, false) => events.push((*node, Event::Down)),
            _ => {}
        }
    }
    let gone = known.keys().filter(|node| !found.contains_key(node));
    events.extend(gone.map(|node| (*node, Event::RemovedNode as fn(SocketAddr) -> Event)));
    events
}

/// The clients of a node that have registered for events.
#[derive(Debug, Default)]
pub struct Events {
    listeners: Mutex<rank::State, Vec<Listener>>,
}

#[derive(Debug)]
struct Listener {
    version: u8,
    /// Bits of [`EventKinds`].
    kinds: Arc<AtomicU8>,
    sender: mpsc::Sender<Vec<u8>>,
}

impl Events {
    /// Tells all clients that have registered for this kind. One that does not read is cut off.
    pub fn tell(&self, event: &Event) {
        self.listeners.lock().retain(|listener| {
            let is_wanted = listener.kinds.load(Ordering::Acquire) & event.kind().0 != 0;
            if is_wanted {
                listener.sender.try_send(event.frame(listener.version)).is_ok()
            } else {
                !listener.sender.is_closed()
            }
        });
    }

    /// The end of a new listener of this version, which has registered for nothing yet.
    pub(super) fn listen(&self, version: u8) -> Registration {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        let kinds = Arc::<AtomicU8>::default();
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| !listener.sender.is_closed());
        listeners.push(Listener { version, kinds: Arc::clone(&kinds), sender });
        Registration { kinds, frames: Mutex::new(receiver) }
    }
}

/// The events that a connection has registered for.
#[derive(Debug)]
pub(super) struct Registration {
    kinds: Arc<AtomicU8>,
    /// Never contended: only the connection itself takes it.
    frames: Mutex<rank::State, mpsc::Receiver<Vec<u8>>>,
}

impl Registration {
    /// Registers for further kinds.
    pub(super) fn add(&self, kinds: EventKinds) {
        self.kinds.fetch_or(kinds.0, Ordering::AcqRel);
    }

    /// The frame of the next event; `None` if too many wait.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        self.frames.lock().poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::poll_fn;

    fn node(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[allow(clippy::option_option, reason = "nothing yet, the end, or an event")]
    fn next(registration: &Registration) -> Option<Option<Vec<u8>>> {
        poll_fn(|context| registration.poll_next(context)).now_or_never()
    }

    #[test]
    fn an_event_is_a_frame_on_stream_minus_one() {
        let frame = Event::Up(SocketAddr::from(([10, 0, 0, 1], 9042))).frame(4);
        let expected =
            b"\x84\0\xFF\xFF\x0C\0\0\0\x1C\0\x0DSTATUS_CHANGE\0\x02UP\x04\x0A\0\0\x01\0\0\x23\x52";
        assert_eq!(frame, expected);
        let change = SchemaChange { change: Change::Created, keyspace: "k".into(), target: None };
        let frame = Event::Schema(change).frame(3);
        assert!(frame.ends_with(b"\0\x0DSCHEMA_CHANGE\0\x07CREATED\0\x08KEYSPACE\0\x01k"));
    }

    #[test]
    fn a_client_gets_the_kinds_that_it_has_registered_for() {
        let events = Events::default();
        let registration = events.listen(4);
        let up = Event::Up(SocketAddr::new(node(1), 1));
        registration.add(EventKinds::TOPOLOGY);
        events.tell(&up);
        assert_eq!(next(&registration), None);
        registration.add(EventKinds::STATUS);
        events.tell(&up);
        assert_eq!(next(&registration), Some(Some(up.frame(4))));
    }

    #[test]
    fn a_client_that_does_not_read_is_cut_off() {
        let events = Events::default();
        let registration = events.listen(4);
        registration.add(EventKinds::STATUS);
        let event = Event::Down(SocketAddr::new(node(1), 1));
        (0..=MOST_WAITING).for_each(|_| events.tell(&event));
        assert!(events.listeners.lock().is_empty());
        for _ in 0..MOST_WAITING {
            assert!(matches!(next(&registration), Some(Some(_))));
        }
        assert_eq!(next(&registration), Some(None));
    }

    #[test]
    fn clients_that_are_gone_are_forgotten() {
        let events = Events::default();
        for _ in 0..100 {
            drop(events.listen(4));
        }
        assert_eq!(events.listeners.lock().len(), 1);
    }

    #[test]
    fn changes_of_the_ring_are_events() {
        let known = [(node(1), true), (node(2), true), (node(3), false), (node(4), false)];
        let found = [(node(1), true), (node(2), false), (node(3), true), (node(5), true)];
        let events = differences(&known.into(), &found.into());
        let at = |node| SocketAddr::new(node, 9042);
        let events: Vec<Event> = events.into_iter().map(|(node, event)| event(at(node))).collect();
        let expected = [
            Event::Down(at(node(2))),
            Event::Up(at(node(3))),
            Event::NewNode(at(node(5))),
            Event::Up(at(node(5))),
            Event::RemovedNode(at(node(4))),
        ];
        assert_eq!(events, expected);
    }
}
