//! Clients that change rows under conditions, and a value that all nodes keep: each is a list of
//! numbers, and a change appends one. `line` judges what they were told.

use crate::cluster::{Cluster, KEYSPACE, Setup, schema};
use crate::line::{self, List};
use alexandra::coordinator::{
    CasOutcome, ConsistencyLevel, Coordinator, CoordinatorError, RegisterError, RowQuery,
    SerialConsistency,
};
use alexandra::model::key::RowKey;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::register::Kept;
use alexandra::model::schema::FamilyId;
use alexandra::model::slice::{RowSlice, Slice};
use alexandra::replica::Follower;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, mpsc};

/// Their column family.
pub(crate) const FAMILY: FamilyId = FamilyId(3);
pub(crate) const FAMILY_NAME: &str = "Registers";

pub(crate) const REGISTERS: u8 = 3;

/// The register whose value all nodes keep. The others are rows.
const VALUE: u8 = 2;
pub(crate) const VALUE_NAME: &str = "value";
/// Time in which all nodes hear of the last value.
const SPREAD_MS: u64 = 20_000;

const CLIENTS: usize = 3;
const LONGEST_REST_MS: u64 = 900;

/// The columns of a row: the list as text, and its last number.
const LIST: &[u8] = b"list";
const LAST: &[u8] = b"last";

/// Values that a node has followed, in order, each with the number of the start.
pub(crate) type Followed = Arc<Mutex<Vec<(u64, Kept)>>>;

/// Takes down what a node follows.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) start: u64,
    pub(crate) followed: Followed,
}

impl Follower for Recorder {
    fn follow(&self, kept: &Kept) -> bool {
        self.followed.lock().unwrap().push((self.start, kept.clone()));
        true
    }
}

/// Request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Read,
    /// Appends this number, whatever the list is.
    Append(u32),
    /// Appends it if the list ends with the other; 0 for an empty list.
    AppendAfter(u32, u32),
}

impl Wish {
    /// The number to be appended.
    pub(crate) fn number(self) -> Option<u32> {
        match self {
            Self::Read => None,
            Self::Append(number) | Self::AppendAfter(number, _) => Some(number),
        }
    }
}

/// Answer to a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Applied,
    /// Read, or found in the place of what was expected.
    Seen(List),
    Unavailable,
    /// The outcome is not known.
    TimedOut,
    Failed(String),
    /// The node went down.
    Lost,
}

/// One call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) register: u8,
    pub(crate) wish: Wish,
    /// The place of its begin among all events, and that of its end.
    pub(crate) began: usize,
    pub(crate) ended: Option<usize>,
    pub(crate) answer: Option<Answer>,
    began_ms: u64,
    ended_ms: u64,
    client: usize,
    node: usize,
    level: ConsistencyLevel,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { register, wish, began_ms, ended_ms, client, node, level, answer, .. } = self;
        write!(f, "{began_ms:>7}-{ended_ms:>7} client {client} at node {node} {level:?}: ")?;
        write!(f, "register {register} {wish:?} => {answer:?}")
    }
}

/// The clients, and all that they did.
pub(crate) struct RegisterClients {
    rng: fastrand::Rng,
    next_call: [u64; CLIENTS],
    pub(crate) calls: Vec<Call>,
    events: usize,
    numbers: u32,
    /// The number that was last seen, or perhaps appended, at the end of each list.
    last: [u32; REGISTERS as usize],
    teller: mpsc::Sender<(usize, Answer)>,
    told: mpsc::Receiver<(usize, Answer)>,
    /// Numbers of calls that have no answer, each with its client.
    open: BTreeMap<usize, usize>,
}

impl RegisterClients {
    pub(crate) fn new(setup: &Setup) -> Self {
        let (teller, told) = mpsc::channel();
        // What is decided by replicas that lose their disks, or are new, may be lost.
        let first = if setup.changes_ring() { u64::MAX } else { 0 };
        Self {
            rng: fastrand::Rng::with_seed(!setup.seed),
            next_call: [first; CLIENTS],
            calls: Vec::new(),
            events: 0,
            numbers: 0,
            last: [0; REGISTERS as usize],
            teller,
            told,
            open: BTreeMap::new(),
        }
    }

    /// When a client that waits for nothing does something next.
    pub(crate) fn next_ms(&self) -> u64 {
        let is_idle = |client: &usize| !self.open.values().any(|it| it == client);
        let idle = (0..CLIENTS).filter(is_idle);
        idle.map(|client| self.next_call[client]).min().unwrap_or(u64::MAX)
    }

    /// Begins the calls that are due.
    pub(crate) fn act(&mut self, cluster: &Cluster) {
        for client in 0..CLIENTS {
            let is_due = cluster.now_ms >= self.next_call[client];
            if is_due && !self.open.values().any(|it| *it == client) {
                self.next_call[client] = cluster.now_ms + self.rng.u64(1..LONGEST_REST_MS);
                let node = self.rng.usize(..cluster.nodes.len());
                if cluster.nodes[node].serves() {
                    let (register, level) = (self.rng.u8(..REGISTERS), self.level());
                    let wish = self.wish(register);
                    self.begin(cluster, (client, node), register, wish, level);
                }
            }
        }
    }

    fn level(&mut self) -> ConsistencyLevel {
        match self.rng.u32(..10) {
            0 => ConsistencyLevel::All,
            1..3 => ConsistencyLevel::One,
            3 => ConsistencyLevel::Any,
            _ => ConsistencyLevel::Quorum,
        }
    }

    fn wish(&mut self, register: u8) -> Wish {
        let kind = self.rng.u32(..10);
        if kind < 2 {
            return Wish::Read;
        }
        self.numbers += 1;
        let last = self.last[usize::from(register)];
        if kind < 6 { Wish::Append(self.numbers) } else { Wish::AppendAfter(self.numbers, last) }
    }

    fn begin(
        &mut self,
        cluster: &Cluster,
        (client, node): (usize, usize),
        register: u8,
        wish: Wish,
        level: ConsistencyLevel,
    ) -> Option<usize> {
        let running = cluster.nodes[node].running.as_ref()?;
        let (number, now, began) = (self.calls.len(), cluster.now_ms, self.events);
        self.events += 1;
        let (began_ms, ended_ms) = (now, now);
        let (ended, answer) = (None, None);
        self.calls.push(Call {
            register,
            wish,
            began,
            ended,
            answer,
            began_ms,
            ended_ms,
            client,
            node,
            level,
        });
        self.open.insert(number, client);
        let (sender, coordinator) = (self.teller.clone(), running.coordinator());
        running.spawn(async move {
            let answer = call(&coordinator, register, wish, level).await;
            // The simulation may be over.
            let _ = sender.send((number, answer));
        });
        Some(number)
    }

    /// Takes what clients were told. Who waits for a node that is down waits in vain.
    pub(crate) fn collect(&mut self, cluster: &Cluster) {
        while let Ok((number, answer)) = self.told.try_recv() {
            self.end(number, answer, cluster.now_ms);
        }
        let is_lost = |number: &usize| !cluster.nodes[self.calls[*number].node].is_up();
        let lost: Vec<usize> = self.open.keys().copied().filter(is_lost).collect();
        for number in lost {
            self.end(number, Answer::Lost, cluster.now_ms);
        }
    }

    fn end(&mut self, number: usize, answer: Answer, now_ms: u64) {
        if self.open.remove(&number).is_none() {
            return;
        }
        let call = &mut self.calls[number];
        let tail = &mut self.last[usize::from(call.register)];
        match (&answer, call.wish.number()) {
            (Answer::Seen(list), _) => *tail = list.last(),
            (Answer::Applied | Answer::TimedOut, Some(number)) => *tail = number,
            _ => {}
        }
        (call.ended, call.answer, call.ended_ms) = (Some(self.events), Some(answer), now_ms);
        self.events += 1;
    }

    /// Reads all registers through each node, when nothing goes wrong any more.
    pub(crate) fn read_everything(&mut self, cluster: &mut Cluster) -> Result<(), String> {
        let nodes = if cluster.setup.changes_ring() { 0 } else { cluster.nodes.len() };
        let versions = |cluster: &Cluster| -> BTreeSet<_> {
            let running = cluster.nodes.iter().filter_map(|node| node.running.as_ref());
            running.map(|it| it.coordinator().register_versions()).collect()
        };
        if nodes > 0 && !cluster.wait(SPREAD_MS, |cluster| versions(cluster).len() == 1) {
            return Err(format!("nodes keep different values: {:?}", versions(cluster)));
        }
        for (node, register) in (0..nodes).flat_map(|node| (0..REGISTERS).map(move |it| (node, it)))
        {
            let (client, level) = ((CLIENTS, node), ConsistencyLevel::Quorum);
            let number = self.begin(cluster, client, register, Wish::Read, level);
            let number = number.ok_or("a node does not run in the end")?;
            while self.open.contains_key(&number) {
                cluster.step(u64::MAX);
                cluster.upkeep();
                self.collect(cluster);
            }
            let call = &self.calls[number];
            if !matches!(call.answer, Some(Answer::Seen(_))) {
                return Err(format!("a register cannot be read in the end: {call}"));
            }
        }
        Ok(())
    }

    /// Judges all calls, and what nodes have followed; an error tells of the register as well.
    pub(crate) fn judge(&self, cluster: &Cluster) -> Result<(), String> {
        let seen = self.calls.iter().filter(|call| call.register == VALUE);
        let seen: Vec<&List> = seen
            .filter_map(|call| match &call.answer {
                Some(Answer::Seen(list)) => Some(list),
                _ => None,
            })
            .collect();
        for node in &cluster.nodes {
            let followed = node.followed.lock().unwrap();
            line::judge_followed(&followed, &seen).map_err(|what| {
                format!("node {} has followed {followed:?}: {what}", node.number)
            })?;
        }
        for register in 0..REGISTERS {
            let calls = || self.calls.iter().filter(|call| call.register == register);
            line::judge(&calls().collect::<Vec<_>>()).map_err(|what| {
                let lines: Vec<String> = calls().map(ToString::to_string).collect();
                format!("{}\nregister {register}: {what}", lines.join("\n"))
            })?;
        }
        Ok(())
    }

    /// Makes what clients were told part of what distinguishes the run.
    pub(crate) fn trace(&self, hasher: &mut impl Hasher) {
        for call in &self.calls {
            (call.began, call.ended, &call.answer).hash(hasher);
        }
    }

    /// How many changes were applied, and how many calls there were.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let applied = self.calls.iter().filter(|call| call.answer == Some(Answer::Applied));
        (applied.count() as u64, self.calls.len() as u64)
    }
}

async fn call(
    coordinator: &Arc<Coordinator>,
    register: u8,
    wish: Wish,
    level: ConsistencyLevel,
) -> Answer {
    if register == VALUE {
        return change_value(coordinator, wish).await;
    }
    let (key, slice) = (RowKey::from(format!("register {register}").as_str()), Slice::all(None));
    let row = RowQuery { family: FAMILY, key: &key, slice: &slice };
    let mut context = coordinator.request();
    let serial = SerialConsistency::Serial;
    let found = match wish {
        Wish::Read => coordinator.read_serial(row, serial, &mut context).await.map(Some),
        Wish::Append(number) | Wish::AppendAfter(number, _) => {
            let decide = |found: &RowSlice, micros: i64| {
                let Some(list) = list_of(found) else {
                    return Err(CoordinatorError::Unsendable(format!("found {found:?}")));
                };
                let is_expected = match wish {
                    Wish::AppendAfter(_, tail) => list.last() == tail,
                    _ => true,
                };
                Ok(is_expected.then(|| mutation(&key, list, number, micros)))
            };
            let levels = (serial, level);
            let outcome = coordinator.compare_and_set(row, levels, decide, &mut context).await;
            outcome.map(|outcome| match outcome {
                CasOutcome::Applied => None,
                CasOutcome::Refused(row) => Some(row),
            })
        }
    };
    match found {
        Ok(None) => Answer::Applied,
        Ok(Some(found)) => match list_of(&found) {
            Some(list) => Answer::Seen(list),
            None => Answer::Failed(format!("found {found:?}")),
        },
        Err(CoordinatorError::Unavailable(_)) => Answer::Unavailable,
        Err(CoordinatorError::TimedOut(_)) => Answer::TimedOut,
        Err(other) => Answer::Failed(other.to_string()),
    }
}

async fn change_value(coordinator: &Arc<Coordinator>, wish: Wish) -> Answer {
    let has_own = |list: &List| wish.number().is_some_and(|it| list.numbers.contains(&it));
    let change = |value: &[u8]| {
        let mut list = list_in(value, 0).ok_or_else(|| format!("found {value:?}"))?;
        let is_expected = match wish {
            Wish::Read => false,
            // An earlier attempt was decided, and others since.
            _ if has_own(&list) => false,
            Wish::Append(_) => true,
            Wish::AppendAfter(_, tail) => list.last() == tail,
        };
        list.numbers.extend(wish.number());
        Ok::<_, String>(is_expected.then(|| text_of(&list).into_bytes()))
    };
    let mut context = coordinator.request();
    match coordinator.change_register(VALUE_NAME, change, &mut context).await {
        Ok((true, _)) => Answer::Applied,
        Ok((false, kept)) => match list_in(&kept.value, kept.version) {
            Some(list) if has_own(&list) => Answer::Applied,
            Some(list) => Answer::Seen(list),
            None => Answer::Failed(format!("found {kept:?}")),
        },
        Err(RegisterError::Dead(_) | RegisterError::Other(CoordinatorError::Unavailable(_))) => {
            Answer::Unavailable
        }
        Err(RegisterError::Silent(_) | RegisterError::Other(CoordinatorError::TimedOut(_))) => {
            Answer::TimedOut
        }
        Err(other) => Answer::Failed(other.to_string()),
    }
}

fn text_of(list: &List) -> String {
    list.numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The list that a value holds; none if nobody can have written that.
pub(crate) fn list_in(value: &[u8], at: i64) -> Option<List> {
    let texts = std::str::from_utf8(value).ok()?.split_whitespace();
    let numbers = texts.map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()?;
    Some(List { numbers, at })
}

fn mutation(key: &RowKey, mut list: List, number: u32, micros: i64) -> RowMutation {
    list.numbers.push(number);
    let schema = schema();
    let mut builder = MutationBuilder::new(&schema, KEYSPACE, key.as_bytes());
    let row = builder.family(FAMILY);
    row.insert((b"", LIST), text_of(&list).as_bytes(), micros);
    row.insert((b"", LAST), number.to_string().as_bytes(), micros);
    builder.finish()
}

/// The list that a row holds; none if nobody can have written that.
fn list_of(row: &RowSlice) -> Option<List> {
    let text = |name: &[u8]| {
        let cell = row.cells.iter().find(|cell| cell.name() == name)?;
        Some((std::str::from_utf8(cell.value()).ok()?, cell.timestamp()))
    };
    if row.cells.is_empty() {
        return Some(List::default());
    }
    let ((list, at), (tail, tail_at)) = (text(LIST)?, text(LAST)?);
    let list = list_in(list.as_bytes(), at)?;
    (tail_at == at && tail == list.last().to_string()).then_some(list)
}
