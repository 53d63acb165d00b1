//! Random runs of participants and proposers whose messages are lost, repeated and out of order,
//! with clocks that differ. All decided changes must form one line, and who reads sees its end.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

const NODES: usize = 3;
const QUORUM: usize = 2;
const CLIENTS: usize = 4;
const STEPS: u64 = 3000;

/// Something that is wrong with all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// A participant that starts again has forgotten its promise, and all else.
    Forgetful,
    /// Proposers do not finish what they find.
    Hasty,
    /// A change is settled that no quorum shows yet.
    SettledEarly,
}

/// A row on one node: the date of the last change, and its number.
type Row = (i64, u64);

#[derive(Debug, Clone)]
enum Body {
    Ask(Ask),
    Apply(Row),
    Read,
    Vote(Vote),
    Row(Row),
}

#[derive(Debug, Clone)]
struct Message {
    node: usize,
    client: usize,
    /// Of the client, to which this message belongs.
    round: u64,
    body: Body,
    is_answer: bool,
}

#[derive(Debug, Clone)]
enum Phase {
    Idle,
    Preparing,
    Reading,
    Proposing(Proposal),
    Applying(Proposal),
}

/// Answer of a call to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Changed,
    Read(Row),
    Unknown,
}

#[derive(Debug)]
struct Call {
    /// The number that it appends; none if it only reads.
    appends: Option<u64>,
    began: u64,
    ended: u64,
    outcome: Outcome,
    /// The ballot by which it read.
    ballot: Ballot,
}

#[derive(Debug)]
struct Client {
    phase: Phase,
    proposer: Proposer,
    ballot: Ballot,
    row: Row,
    appends: Option<u64>,
    began: u64,
    round: u64,
    answers: BTreeMap<usize, Body>,
    refusals: usize,
    skew: i64,
}

struct Model {
    rng: fastrand::Rng,
    defect: Defect,
    now: u64,
    nodes: Vec<(Register, Row)>,
    clients: Vec<Client>,
    flying: Vec<Message>,
    calls: Vec<Call>,
    /// All decided proposals, by ballot.
    decided: BTreeMap<Ballot, Proposal>,
    numbers: u64,
}

fn value(number: u64, seen: Row) -> Vec<u8> {
    [number.to_be_bytes(), seen.1.to_be_bytes()].concat()
}

/// The number that a change appends, and the one that it follows.
fn numbers(value: &[u8]) -> (u64, u64) {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    (number(&value[..8]), number(&value[8..]))
}

impl Model {
    fn new(seed: u64, defect: Defect) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let client = |_| Client {
            phase: Phase::Idle,
            proposer: Proposer::default(),
            ballot: Ballot::default(),
            row: (0, 0),
            appends: None,
            began: 0,
            round: 0,
            answers: BTreeMap::new(),
            refusals: 0,
            skew: rng.i64(-200..200),
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self {
            rng,
            defect,
            now: 1000,
            nodes: vec![(Register::default(), (0, 0)); NODES],
            clients,
            flying: Vec::new(),
            calls: Vec::new(),
            decided: BTreeMap::new(),
            numbers: 0,
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.now += 1;
            match self.rng.u32(..100) {
                0 => self.restart(),
                1 => {
                    // Gives up waiting: tries again, or lets it be.
                    let client = self.rng.usize(..CLIENTS);
                    match (&self.clients[client].phase, self.rng.bool()) {
                        (Phase::Idle, _) => {}
                        (_, true) => self.attempt(client),
                        (_, false) => self.end(client, Outcome::Unknown),
                    }
                }
                2..6 => {
                    let client = self.rng.usize(..CLIENTS);
                    if matches!(self.clients[client].phase, Phase::Idle) {
                        self.begin(client);
                    }
                }
                _ => self.deliver(),
            }
        }
    }

    /// A participant starts again with what it has written.
    fn restart(&mut self) {
        let node = self.rng.usize(..NODES);
        let bytes = self.nodes[node].0.encode();
        let is_forgotten = self.defect == Defect::Forgetful;
        self.nodes[node].0 =
            if is_forgotten { Register::default() } else { Register::decode(&bytes).unwrap() };
    }

    fn begin(&mut self, client: usize) {
        self.numbers += 1;
        let appends = (self.rng.u32(..4) > 0).then_some(self.numbers);
        let now = self.now;
        let it = &mut self.clients[client];
        (it.appends, it.began, it.proposer) = (appends, now, Proposer::default());
        self.attempt(client);
    }

    fn attempt(&mut self, client: usize) {
        let number = self.rng.u64(..);
        let it = &mut self.clients[client];
        it.ballot = it.proposer.begin(self.now as i64 + it.skew, number);
        let ask = Body::Ask(Ask::Prepare(it.ballot));
        self.send(client, Phase::Preparing, &ask);
    }

    fn end(&mut self, client: usize, outcome: Outcome) {
        let it = &mut self.clients[client];
        it.phase = Phase::Idle;
        it.round += 1;
        let (appends, began, ended, ballot) = (it.appends, it.began, self.now, it.ballot);
        self.calls.push(Call { appends, began, ended, outcome, ballot });
    }

    /// Enters a phase in which all nodes are asked for something.
    fn send(&mut self, client: usize, phase: Phase, body: &Body) {
        let it = &mut self.clients[client];
        it.phase = phase;
        it.round += 1;
        it.answers.clear();
        it.refusals = 0;
        self.post(client, body);
    }

    fn post(&mut self, client: usize, body: &Body) {
        let round = self.clients[client].round;
        let message = |node| Message { node, client, round, body: body.clone(), is_answer: false };
        self.flying.extend((0..NODES).map(message));
    }

    /// Delivers a message, or loses it, perhaps to deliver it once more.
    fn deliver(&mut self) {
        if self.flying.is_empty() {
            return;
        }
        let place = self.rng.usize(..self.flying.len());
        let message = match self.rng.u32(..100) {
            0..8 => self.flying[place].clone(),
            8..18 => {
                self.flying.swap_remove(place);
                return;
            }
            _ => self.flying.swap_remove(place),
        };
        if message.is_answer { self.on_answer(message) } else { self.on_request(&message) }
    }

    fn on_request(&mut self, message: &Message) {
        let (register, row) = &mut self.nodes[message.node];
        let body = match message.body.clone() {
            Body::Ask(Ask::Settle(decision)) => {
                register.take(Ask::Settle(decision));
                return;
            }
            Body::Ask(ask) => Body::Vote(register.take(ask).0),
            Body::Apply(change) => {
                *row = change.max(*row);
                Body::Row(*row)
            }
            _ => Body::Row(*row),
        };
        self.flying.push(Message { body, is_answer: true, ..*message });
    }

    fn on_answer(&mut self, message: Message) {
        let client = message.client;
        let it = &mut self.clients[client];
        if message.round != it.round {
            return;
        }
        if let Body::Vote(Vote::Refused(newest)) = message.body {
            it.proposer.see(newest);
            it.refusals += 1;
            if it.refusals > NODES - QUORUM {
                self.attempt(client);
            }
            return;
        }
        it.answers.insert(message.node, message.body);
        if it.answers.len() == QUORUM {
            self.go_on(client);
        }
    }

    /// A quorum has answered.
    fn go_on(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let answers: Vec<Body> = it.answers.values().cloned().collect();
        match std::mem::replace(&mut it.phase, Phase::Idle) {
            Phase::Idle => {}
            Phase::Preparing => {
                let promise = |body| match body {
                    Body::Vote(Vote::Promised { settled, accepted }) => (settled, accepted),
                    other => panic!("{other:?} is no answer"),
                };
                let mut next = it.proposer.on_promises(answers.into_iter().map(promise));
                if self.defect == Defect::Hasty && matches!(next, Next::Finish(_)) {
                    next = Next::Propose;
                }
                match next {
                    Next::Finish(proposal) => self.propose(client, proposal),
                    Next::Propose => self.send(client, Phase::Reading, &Body::Read),
                    Next::Done => self.end(client, Outcome::Changed),
                    Next::Unknown => self.end(client, Outcome::Unknown),
                }
            }
            Phase::Reading => {
                let row = |body: &Body| match body {
                    Body::Row(row) => *row,
                    other => panic!("{other:?} is no answer"),
                };
                it.row = answers.iter().map(row).max().unwrap();
                let value = it.appends.map(|number| value(number, it.row)).unwrap_or_default();
                let proposal = it.proposer.propose(value);
                self.propose(client, proposal);
            }
            Phase::Proposing(proposal) => {
                let decided = self.decided.entry(proposal.decision.ballot);
                let decided = decided.or_insert_with(|| proposal.clone());
                assert_eq!(*decided, proposal, "one ballot, two changes");
                if proposal.value.is_empty() {
                    self.post(client, &Body::Ask(Ask::Settle(proposal.decision)));
                    let row = self.clients[client].row;
                    self.end(client, Outcome::Read(row));
                    return;
                }
                if self.defect == Defect::SettledEarly {
                    self.post(client, &Body::Ask(Ask::Settle(proposal.decision)));
                }
                let change = (proposal.decision.origin.micros, numbers(&proposal.value).0);
                self.send(client, Phase::Applying(proposal), &Body::Apply(change));
            }
            Phase::Applying(proposal) => {
                self.post(client, &Body::Ask(Ask::Settle(proposal.decision)));
                if self.clients[client].proposer.is_own(&proposal.decision) {
                    self.end(client, Outcome::Changed);
                } else {
                    self.attempt(client);
                }
            }
        }
    }

    fn propose(&mut self, client: usize, proposal: Proposal) {
        let ask = Body::Ask(Ask::Propose(proposal.clone()));
        self.send(client, Phase::Proposing(proposal), &ask);
    }

    /// The decided changes in their order: date, origin and number of each.
    fn line(&self) -> Result<Vec<(i64, Ballot, u64)>, String> {
        let changes = self.decided.values().filter(|proposal| !proposal.value.is_empty());
        let changes: BTreeMap<Ballot, &[u8]> =
            changes.map(|it| (it.decision.origin, &it.value[..])).collect();
        let (mut line, mut last) = (Vec::new(), (0, 0));
        for (origin, value) in changes {
            let (number, follows) = numbers(value);
            if follows != last.1 {
                return Err(format!("{number} follows {follows}, and not {}", last.1));
            }
            if origin.micros <= last.0 {
                return Err(format!("{number} is not newer than {}", last.1));
            }
            last = (origin.micros, number);
            line.push((origin.micros, origin, number));
        }
        Ok(line)
    }

    fn judge(&self) -> Result<(), String> {
        let line = self.line()?;
        let place = |number: u64| line.iter().position(|it| it.2 == number).map(|at| at + 1);
        let numbers: BTreeSet<u64> = line.iter().map(|it| it.2).collect();
        if numbers.len() != line.len() {
            return Err("a change was decided twice".into());
        }
        // What each call knew at its end: at least so much of the line.
        let mut known = Vec::new();
        for call in &self.calls {
            let at_least = match (call.outcome, call.appends) {
                (Outcome::Unknown, _) => continue,
                (Outcome::Changed, Some(number)) => {
                    place(number).ok_or_else(|| format!("{number} was lost"))?
                }
                (Outcome::Read((_, 0)), None) => 0,
                (Outcome::Read((_, number)), None) => {
                    place(number).ok_or_else(|| format!("{number} was seen and is lost"))?
                }
                other => return Err(format!("a call has the outcome {other:?}")),
            };
            if call.appends.is_none()
                && let Some((_, origin, late)) = line.get(at_least)
                && *origin < call.ballot
            {
                return Err(format!("{late} came after a read that has not shown it"));
            }
            let before = known.iter().filter(|(ended, _)| *ended < call.began);
            if before.map(|(_, place)| *place).max().is_some_and(|least| at_least < least) {
                return Err(format!("a call that began at {} saw the past", call.began));
            }
            known.push((call.ended, at_least));
        }
        Ok(())
    }
}

fn play(seed: u64, defect: Defect) -> Result<(usize, usize), String> {
    let mut model = Model::new(seed, defect);
    model.run();
    model.judge()?;
    let certain = model.calls.iter().filter(|call| call.outcome != Outcome::Unknown);
    Ok((model.line()?.len(), certain.count()))
}

#[test]
fn all_changes_form_one_line() {
    let (mut changes, mut certain) = (0, 0);
    for seed in 0..300 {
        let (line, calls) =
            play(seed, Defect::None).unwrap_or_else(|what| panic!("{seed}: {what}"));
        changes += line;
        certain += calls;
    }
    assert!(changes > 300 && certain > 300, "{changes} changes, {certain} certain calls");
}

#[test]
fn the_model_finds_defects() {
    for defect in [Defect::Forgetful, Defect::Hasty, Defect::SettledEarly] {
        let found = (0..300).find_map(|seed| play(seed, defect).err());
        assert!(found.is_some(), "{defect:?} is not found");
    }
}
